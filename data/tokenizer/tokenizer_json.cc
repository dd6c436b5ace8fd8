#include "data/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

using Json = nlohmann::json;

constexpr int32_t kLargestId = (1 << 24) - 1;

// The pattern that ByteLevel itself cuts by.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";

std::string Character(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// The character for each byte: itself if printable, else one from U+0100 on.
const std::array<std::string, 256>& ByteCharacters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> all;
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= '!' && byte <= '~') ||
                          (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      all[byte] = Character(prints ? byte : next++);
    }
    return all;
  }();
  return characters;
}

// The bytes that `text` stands for; nullopt if it has other characters.
std::optional<std::string> TextToBytes(std::string_view text) {
  static const absl::flat_hash_map<std::string, char> bytes = [] {
    absl::flat_hash_map<std::string, char> all;
    for (size_t byte = 0; byte < 256; ++byte) {
      all[ByteCharacters()[byte]] = static_cast<char>(byte);
    }
    return all;
  }();
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && CharacterBoundary(text, end) != end) ++end;
    const auto found = bytes.find(std::string(text.substr(begin, end - begin)));
    if (found == bytes.end()) return std::nullopt;
    out += found->second;
    begin = end;
  }
  return out;
}

const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

bool IsTrue(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  return value.is_boolean() && value.get<bool>();
}

std::string Text(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// The type that a part gives, for messages.
std::string TypeOf(const Json& part) {
  if (part.is_null()) return "null";
  const std::string type = Text(part, "type");
  return type.empty() ? "without a type" : type;
}

std::optional<int32_t> Id(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const int64_t id = value.get<int64_t>();
  if (id < 0 || id > kLargestId) return std::nullopt;
  return static_cast<int32_t>(id);
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  absl::StatusOr<TokenizerSpec> Run(const Json& root) {
    if (!root.is_object() || !Member(root, "model").is_object()) {
      return Wrong("it has no model; give the tokenizer.json of a model");
    }
    DELINK_RETURN_IF_ERROR(Model(root["model"]));
    DELINK_RETURN_IF_ERROR(Normalizer(Member(root, "normalizer")));
    DELINK_RETURN_IF_ERROR(PreTokenizer(Member(root, "pre_tokenizer")));
    DELINK_RETURN_IF_ERROR(Decoder(Member(root, "decoder")));
    DELINK_RETURN_IF_ERROR(AddedTokens(Member(root, "added_tokens")));
    PostProcessor(Member(root, "post_processor"));
    return std::move(spec_);
  }

 private:
  absl::Status Wrong(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": ", what));
  }
  absl::Status Unsupported(const std::string& part) const {
    return Wrong(absl::StrCat(
        part,
        " is not supported; byte-level BPE (GPT-2, Llama 3, Qwen) and "
        "SentencePiece's .model files are"));
  }
  absl::Status Malformed(const std::string& part) const {
    return Wrong(absl::StrCat(part, "; the file is damaged: fetch it again"));
  }

  absl::Status Model(const Json& model) {
    const std::string type = Text(model, "type");
    // Early files do not give the type.
    if (type != "BPE" && !(type.empty() && model.contains("merges"))) {
      return Unsupported(absl::StrCat("model ", TypeOf(model)));
    }
    for (const char* affix :
         {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!Text(model, affix).empty()) {
        return Unsupported(absl::StrCat("model: ", affix));
      }
    }
    const Json& dropout = Member(model, "dropout");
    if (dropout.is_number() && dropout.get<double>() != 0) {
      return Unsupported("model: dropout");
    }
    spec_.ignore_merges = IsTrue(model, "ignore_merges");
    DELINK_RETURN_IF_ERROR(Vocabulary(Member(model, "vocab")));
    return Merges(Member(model, "merges"));
  }

  absl::Status Vocabulary(const Json& vocab) {
    if (!vocab.is_object() || vocab.empty()) {
      return Malformed("model: vocab is not an object of tokens");
    }
    for (const auto& [token, value] : vocab.items()) {
      const std::optional<int32_t> id = Id(value);
      if (!id.has_value() || !ids_of_model_.insert(*id).second) {
        return Malformed(absl::StrCat("model: vocab: token \"", token,
                                      "\" has no id of its own below ",
                                      kLargestId + 1));
      }
      const size_t at = static_cast<size_t>(*id);
      if (at >= spec_.tokens.size()) {
        spec_.tokens.resize(at + 1);
        spec_.in_bytes.resize(at + 1, false);
      }
      const std::optional<std::string> bytes = TextToBytes(token);
      spec_.tokens[at] = bytes.value_or(token);
      spec_.in_bytes[at] = bytes.has_value();
      ids_[token] = *id;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(ByteCharacters()[byte]);
      if (found == ids_.end()) {
        return Unsupported(absl::StrCat("model: a vocabulary without byte ",
                                        byte, " (not byte-level)"));
      }
      spec_.byte_ids[byte] = found->second;
    }
    return absl::OkStatus();
  }

  absl::Status Merges(const Json& merges) {
    if (!merges.is_array()) return Malformed("model: merges is not a list");
    spec_.merges.reserve(merges.size());
    for (const Json& merge : merges) {
      std::string left, right;
      if (merge.is_string()) {
        const std::string both = merge.get<std::string>();
        const size_t space = both.find(' ');
        left = both.substr(0, space);
        if (space != std::string::npos) right = both.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 &&
                 merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      }
      const auto a = ids_.find(left), b = ids_.find(right);
      const auto result = ids_.find(left + right);
      if (left.empty() || right.empty() || a == ids_.end() || b == ids_.end() ||
          result == ids_.end()) {
        return Malformed(absl::StrCat("model: merge ", spec_.merges.size(),
                                      " does not make a third token of two"));
      }
      spec_.merges.push_back(
          {.left = a->second, .right = b->second, .result = result->second});
    }
    return absl::OkStatus();
  }

  absl::Status Normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return absl::OkStatus();
    const std::string type = Text(normalizer, "type");
    if (type == "NFC") {
      spec_.nfc = true;
      return absl::OkStatus();
    }
    if (type != "Sequence") {
      return Unsupported(absl::StrCat("normalizer ", TypeOf(normalizer)));
    }
    for (const Json& part : Member(normalizer, "normalizers")) {
      if (Text(part, "type") != "NFC") {
        return Unsupported(absl::StrCat("normalizer ", TypeOf(part)));
      }
      spec_.nfc = true;
    }
    return absl::OkStatus();
  }

  absl::Status PreTokenizer(const Json& pre_tokenizer) {
    if (Text(pre_tokenizer, "type") != "Sequence") {
      DELINK_RETURN_IF_ERROR(PreTokenizerPart(pre_tokenizer));
    } else {
      for (const Json& part : Member(pre_tokenizer, "pretokenizers")) {
        DELINK_RETURN_IF_ERROR(PreTokenizerPart(part));
      }
    }
    if (byte_level_) return absl::OkStatus();
    return Unsupported("a pre_tokenizer that does not end in ByteLevel");
  }

  absl::Status PreTokenizerPart(const Json& part) {
    const std::string type = Text(part, "type");
    const std::string where = absl::StrCat("pre_tokenizer ", TypeOf(part));
    // ByteLevel replaces bytes by characters, so no part can follow it.
    if (byte_level_)
      return Unsupported(absl::StrCat(where, " after ByteLevel"));
    if (type == "ByteLevel") {
      if (IsTrue(part, "add_prefix_space")) {
        return Unsupported(absl::StrCat(where, " with add_prefix_space"));
      }
      const Json& regex = Member(part, "use_regex");
      if (!regex.is_boolean() || regex.get<bool>()) {
        spec_.splits.push_back({.pattern = kByteLevelPattern});
      }
      byte_level_ = true;
      return absl::OkStatus();
    }
    if (type == "Digits") {
      spec_.splits.push_back({.pattern = IsTrue(part, "individual_digits")
                                             ? R"(\p{N})"
                                             : R"(\p{N}+)"});
      return absl::OkStatus();
    }
    if (type != "Split") return Unsupported(where);
    return SplitPart(part, where);
  }

  absl::Status SplitPart(const Json& part, const std::string& where) {
    const std::string behavior = Text(part, "behavior");
    const bool invert = IsTrue(part, "invert");
    // Removing what does not match keeps only the matches.
    const bool only_matches = behavior == "Removed" && invert;
    if (behavior != "Isolated" && !only_matches) {
      return Unsupported(absl::StrCat(where, " with behavior ", behavior,
                                      invert ? ", inverted" : ""));
    }
    const Json& pattern = Member(part, "pattern");
    const std::string regex = Text(pattern, "Regex");
    const std::string text = Text(pattern, "String");
    if (regex.empty() == text.empty()) {
      return Unsupported(absl::StrCat(where, " without one pattern"));
    }
    spec_.splits.push_back({.pattern = regex + text,
                            .literal = regex.empty(),
                            .keep_rest = !only_matches});
    return absl::OkStatus();
  }

  absl::Status Decoder(const Json& decoder) const {
    const std::string type = Text(decoder, "type");
    if (decoder.is_null() || type == "ByteLevel") return absl::OkStatus();
    return Unsupported(absl::StrCat("decoder ", TypeOf(decoder)));
  }

  absl::Status AddedTokens(const Json& added) {
    for (const Json& token : added) {
      const std::string content = Text(token, "content");
      const std::optional<int32_t> id = Id(Member(token, "id"));
      const std::string where = absl::StrCat("added token \"", content, "\"");
      if (content.empty() || !id.has_value()) {
        return Malformed(absl::StrCat(where, " has no content or no id"));
      }
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        if (IsTrue(token, flag)) {
          return Unsupported(absl::StrCat(where, " with ", flag));
        }
      }
      const auto [entry, is_new] = ids_.emplace(content, *id);
      const bool taken = is_new && !ids_of_model_.insert(*id).second;
      if (taken || entry->second != *id) {
        return Malformed(
            absl::StrCat(where, ": id ", *id, " is that of another token"));
      }
      spec_.added.push_back({.id = *id,
                             .content = content,
                             .special = IsTrue(token, "special"),
                             .normalized = IsTrue(token, "normalized")});
    }
    return absl::OkStatus();
  }

  void PostProcessor(const Json& post_processor) {
    Template(post_processor);
    for (const Json& part : Member(post_processor, "processors")) {
      Template(part);  // of a Sequence
    }
  }

  void Template(const Json& part) {
    for (const Json& piece : Member(part, "single")) {
      const Json& token = Member(piece, "SpecialToken");
      if (token.is_null()) return;  // the text itself
      spec_.in_front.push_back(Text(token, "id"));
    }
  }

  const std::string& name_;
  TokenizerSpec spec_;
  absl::flat_hash_map<std::string, int32_t> ids_;  // as the file spells them
  absl::flat_hash_set<int32_t> ids_of_model_;      // all that are taken
  bool byte_level_ = false;
};

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view bytes,
                                                 const std::string& name) {
  const Json root = ParseJson(bytes);
  if (root.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        ": begins like JSON but is not; give a complete tokenizer.json, or a "
        "SentencePiece .model file"));
  }
  return Parser(name).Run(root);
}

std::string BytesToText(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += ByteCharacters()[static_cast<unsigned char>(byte)];
  }
  return text;
}

}  // namespace delink
