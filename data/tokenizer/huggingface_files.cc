#include "data/tokenizer/huggingface_files.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/sentencepiece_bridge.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"
#include "framework/base/check.h"
#include "framework/base/json.h"

namespace delink {
namespace {

using OrderedJson = nlohmann::ordered_json;
using sentencepiece_bridge::Piece;
using sentencepiece_bridge::PieceKind;

constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581, as models write a space

// The end of a document for a tokenizer that got an additional id after its
// last. transformers gives an unknown token the same id.
constexpr char kOwnEnd[] = "<|end_of_document|>";

// Names of the end of a document in SentencePiece models.
constexpr const char* kEndsOfModels[] = {"</s>", "<eos>", "<|endoftext|>"};

OrderedJson Added(int32_t id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false},
          {"special", true}};
}

// The name of the end of a document in a tokenizer.json.
std::string EndOfJson(const OrderedJson& json, const Tokenizer& tokenizer) {
  if (!json.contains("added_tokens")) return kOwnEnd;
  for (const OrderedJson& token : json["added_tokens"]) {
    if (token["id"] == tokenizer.end_of_document()) {
      return token["content"].get<std::string>();
    }
  }
  return kOwnEnd;
}

std::string EndOfModel(const Tokenizer& tokenizer) {
  for (const char* name : kEndsOfModels) {
    if (tokenizer.SpecialToken(name) == tokenizer.end_of_document()) {
      return name;
    }
  }
  return kOwnEnd;
}

std::string Config(const char* tokenizer_class, const std::string& end) {
  const OrderedJson config{{"tokenizer_class", tokenizer_class},
                           {"bos_token", nullptr},
                           {"eos_token", end},
                           {"add_bos_token", false},
                           {"add_eos_token", false},
                           {"clean_up_tokenization_spaces", false}};
  return JsonText(config, 2) + "\n";
}

// Removes a post_processor that puts tokens in front of a text: this tokenizer
// put none there, and no setting makes transformers ignore it.
TokenizerFiles OfJson(const Tokenizer& tokenizer) {
  OrderedJson json = ParseOrderedJson(tokenizer.Serialize());
  TokenizerFiles files{{kTokenizerJson, tokenizer.Serialize()}};
  files[kTokenizerConfig] =
      Config("PreTrainedTokenizerFast", EndOfJson(json, tokenizer));
  const auto spec = ParseTokenizerJson(tokenizer.Serialize(), "tokenizer");
  DELINK_CHECK(spec.ok()) << std::string(spec.status().message());
  if (spec->in_front.empty()) return files;
  json["post_processor"] = nullptr;
  files[kTokenizerJson] = JsonText(json, 2) + "\n";
  return files;
}

// Bytes are byte-level BPE without merges.
TokenizerFiles OfBytes(const Tokenizer& tokenizer) {
  OrderedJson vocab = OrderedJson::object();
  for (int32_t id = 0; id < tokenizer.end_of_document(); ++id) {
    vocab[BytesToText(tokenizer.TokenBytes(id))] = id;
  }
  const OrderedJson byte_level{{"type", "ByteLevel"},
                               {"add_prefix_space", false},
                               {"trim_offsets", true},
                               {"use_regex", false}};
  const OrderedJson json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       OrderedJson::array({Added(tokenizer.end_of_document(), kOwnEnd)})},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", std::move(vocab)},
        {"merges", OrderedJson::array()}}}};
  return {{kTokenizerJson, JsonText(json, 2) + "\n"},
          {kTokenizerConfig, Config("PreTrainedTokenizerFast", kOwnEnd)}};
}

OrderedJson Part(const char* type) {
  OrderedJson part;
  part["type"] = type;
  return part;
}

// Whether the model is a unigram model with byte fallback that leaves spaces as
// they are. Scores of BPE models are whole numbers.
bool IsPlainUnigram(const Tokenizer& tokenizer, const std::vector<Piece>& all) {
  constexpr char kText[] = " a  b\n c ";
  const auto ids = tokenizer.Encode(kText);
  if (!ids.ok() || tokenizer.Decode(*ids) != kText) return false;
  const auto bytes = std::count_if(all.begin(), all.end(), [](const Piece& p) {
    return p.kind == PieceKind::kByte;
  });
  return bytes == 256 &&
         std::any_of(all.begin(), all.end(), [](const Piece& p) {
           return p.kind == PieceKind::kText && p.score != std::round(p.score);
         });
}

// The same model as a tokenizer.json of the `tokenizers` library.
std::string UnigramJson(const std::vector<Piece>& pieces) {
  OrderedJson vocab = OrderedJson::array(), added = OrderedJson::array();
  int32_t unknown = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const auto id = static_cast<int32_t>(i);
    vocab.push_back(OrderedJson::array({piece.text, piece.score}));
    if (piece.kind == PieceKind::kUnknown) unknown = id;
    const bool text =
        piece.kind == PieceKind::kText || piece.kind == PieceKind::kByte;
    if (!text) added.push_back(Added(id, piece.text));
  }
  const OrderedJson to_spaces{
      {"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}};
  const OrderedJson json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer",
       {{"type", "Replace"},
        {"pattern", {{"String", " "}}},
        {"content", kSpace}}},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         OrderedJson::array({to_spaces, Part("ByteFallback"), Part("Fuse")})}}},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", unknown},
        {"vocab", std::move(vocab)},
        {"byte_fallback", true}}}};
  return JsonText(json) + "\n";
}

TokenizerFiles OfModel(const Tokenizer& tokenizer) {
  const std::string end = EndOfModel(tokenizer);
  TokenizerFiles files{{kTokenizerModel, tokenizer.Serialize()}};
  std::unique_ptr<sentencepiece_bridge::Model> model;
  const std::string error =
      sentencepiece_bridge::Load(tokenizer.Serialize(), &model);
  DELINK_CHECK(error.empty()) << error;
  const std::vector<Piece> pieces = model->Pieces();
  if (IsPlainUnigram(tokenizer, pieces)) {
    files[kTokenizerJson] = UnigramJson(pieces);
    files[kTokenizerConfig] = Config("PreTrainedTokenizerFast", end);
    return files;
  }
  OrderedJson config = ParseOrderedJson(Config("LlamaTokenizer", end));
  config["legacy"] = false;
  files[kTokenizerConfig] = JsonText(config, 2) + "\n";
  return files;
}

HuggingFaceTokenizer OfFolder(const Tokenizer& tokenizer) {
  const auto files = UnpackFiles(tokenizer.Serialize(), "tokenizer");
  DELINK_CHECK(files.ok()) << std::string(files.status().message());
  const auto special = ReadSpecialTokens(*files, "tokenizer");
  DELINK_CHECK(special.ok()) << std::string(special.status().message());
  HuggingFaceTokenizer to{.files = *files,
                          .begin = tokenizer.begin_of_sequence(),
                          .end = tokenizer.SpecialToken(special->end)};
  if (to.begin < 0) to.begin = tokenizer.SpecialToken(special->begin);
  if (to.end < 0) to.end = tokenizer.end_of_document();
  return to;
}

}  // namespace

HuggingFaceTokenizer ForHuggingFace(const Tokenizer& tokenizer) {
  const std::string& bytes = tokenizer.Serialize();
  if (IsPacked(bytes)) return OfFolder(tokenizer);
  HuggingFaceTokenizer to{.end = tokenizer.end_of_document()};
  const std::string_view kind = tokenizer.kind();
  if (bytes == ByteTokenizer::kSerialized) {
    to.files = OfBytes(tokenizer);
  } else if (LooksLikeJson(bytes)) {
    to.files = OfJson(tokenizer);
  } else if (kind != "ids") {
    to.files = OfModel(tokenizer);
  }
  return to;
}

}  // namespace delink
