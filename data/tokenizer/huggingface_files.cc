#include "data/tokenizer/huggingface_files.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"
#include "framework/base/check.h"
#include "framework/base/json.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

// Of a tokenizer whose end of a document is an id of ours, past its last:
// transformers puts a token that it does not know there too.
constexpr char kOwnEnd[] = "<|end_of_document|>";

// What models of SentencePiece call the end of a document.
constexpr const char* kEndsOfModels[] = {"</s>", "<eos>", "<|endoftext|>"};

Json Added(int32_t id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false},
          {"special", true}};
}

// What the end of a document is called in a tokenizer.json.
std::string EndOfJson(const Tokenizer& tokenizer) {
  const Json json = ParseOrderedJson(tokenizer.Serialize());
  if (!json.contains("added_tokens")) return kOwnEnd;
  for (const Json& token : json["added_tokens"]) {
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
  const Json config{{"tokenizer_class", tokenizer_class},
                    {"bos_token", nullptr},
                    {"eos_token", end},
                    {"add_bos_token", false},
                    {"add_eos_token", false},
                    {"clean_up_tokenization_spaces", false}};
  return JsonText(config, 2) + "\n";
}

TokenizerFiles OfJson(const Tokenizer& tokenizer) {
  return {{kTokenizerJson, tokenizer.Serialize()},
          {kTokenizerConfig,
           Config("PreTrainedTokenizerFast", EndOfJson(tokenizer))}};
}

// Bytes are byte-level BPE that merges nothing.
TokenizerFiles OfBytes(const Tokenizer& tokenizer) {
  Json vocab = Json::object();
  for (int32_t id = 0; id < tokenizer.end_of_document(); ++id) {
    vocab[BytesToText(tokenizer.TokenBytes(id))] = id;
  }
  const Json byte_level{{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", false}};
  const Json json{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens",
                   Json::array({Added(tokenizer.end_of_document(), kOwnEnd)})},
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
                    {"merges", Json::array()}}}};
  return {{kTokenizerJson, JsonText(json, 2) + "\n"},
          {kTokenizerConfig, Config("PreTrainedTokenizerFast", kOwnEnd)}};
}

TokenizerFiles OfModel(const Tokenizer& tokenizer) {
  Json config = Json::parse(Config("LlamaTokenizer", EndOfModel(tokenizer)));
  config["legacy"] = false;
  return {{kTokenizerModel, tokenizer.Serialize()},
          {kTokenizerConfig, JsonText(config, 2) + "\n"}};
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
