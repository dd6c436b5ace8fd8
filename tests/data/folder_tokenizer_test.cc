// Tokenizers of folders of Hugging Face: which file is taken, what is put
// around a text, and that all files go out as they came in.
#include "data/tokenizer/folder_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/huggingface_files.h"
#include "data/tokenizer/sentencepiece_bridge.h"
#include "tests/data/text_samples.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::folder_tokenizer_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Of the small tokenizers: <|endoftext|> is 0 and <|im_start|> 1.
Json Fixture(const std::string& name) {
  return Json::parse(
      testing::ReadOrDie(testing::SourcePath("tests/data/tokenizers/") + name));
}

// What Llama 3's file has: two parts, of which the second puts tokens in front.
Json PutsInFront(const std::vector<std::string>& tokens) {
  Json single = Json::array();
  for (const std::string& token : tokens) {
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  return {{"type", "Sequence"},
          {"processors",
           {{{"type", "ByteLevel"}},
            {{"type", "TemplateProcessing"}, {"single", single}}}}};
}

// A model as Llama 2's: <s> in front, </s> behind, spaces added.
const std::string& LlamasModel() {
  static const std::string model = [] {
    std::string trained;
    const std::vector<std::string> lines(50, "the slab of a layer holds it");
    EXPECT_EQ(sentencepiece_bridge::Train({{"model_type", "bpe"},
                                           {"vocab_size", "300"},
                                           {"byte_fallback", "true"},
                                           {"hard_vocab_limit", "false"},
                                           {"num_threads", "1"},
                                           {"minloglevel", "3"}},
                                          lines, &trained),
              "");
    return trained;
  }();
  return model;
}

class Folder : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    testing::WriteOrDie(dir_ / name, bytes);
  }
  void WriteJson(const std::string& name, const Json& json) {
    Write(name, json.dump());
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> Load() {
    return LoadTokenizerFolder(dir_.path());
  }
  std::unique_ptr<Tokenizer> Loaded() {
    auto tokenizer = Load();
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? *std::move(tokenizer) : MakeByteTokenizer();
  }
  std::string Refused() { return std::string(Load().status().message()); }

  testing::TempDir dir_;
};

TEST_F(Folder, WhatThePostProcessorPutsInFrontGoesThere) {
  Json json = Fixture("llama3.json");
  json["post_processor"] = PutsInFront({"<|im_start|>"});
  WriteJson("tokenizer.json", json);
  const auto tokenizer = Loaded();
  EXPECT_EQ(tokenizer->begin_of_sequence(), 1);
  EXPECT_EQ(tokenizer->prefix_token(), 1);
  EXPECT_EQ(tokenizer->end_of_document(), 0);
  // In no text, and of no text.
  const std::string text = "a<|im_start|>b<|endoftext|>";
  const auto ids = tokenizer->EncodeDocument(text).value();
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 0);
  EXPECT_EQ(tokenizer->Decode(ids), text);
  EXPECT_EQ(tokenizer->Encode(text)->size() + 1, ids.size());
  EXPECT_THAT(*tokenizer->EncodeDocument(""), ElementsAre(1));

  // The file alone is taken as ever.
  const auto alone = LoadTokenizerFile(dir_ / "tokenizer.json").value();
  EXPECT_EQ(alone->begin_of_sequence(), -1);
  EXPECT_EQ(*alone->EncodeDocument("a"), *alone->Encode("a"));
  EXPECT_EQ(alone->Serialize(), json.dump());
}

TEST_F(Folder, TheConfigHasTheLastWord) {
  Json json = Fixture("llama3.json");
  json["post_processor"] = PutsInFront({"<|im_start|>"});
  WriteJson("tokenizer.json", json);
  WriteJson("tokenizer_config.json",
            Json{{"add_bos_token", false}, {"bos_token", "<|im_start|>"}});
  EXPECT_EQ(Loaded()->begin_of_sequence(), -1);
  // It is known all the same, and what a text without a context follows.
  EXPECT_EQ(Loaded()->prefix_token(), 1);
  EXPECT_EQ(Loaded()->Encode("<|im_start|>")->size(), 1u);

  WriteJson("tokenizer.json", Fixture("gpt2.json"));
  EXPECT_EQ(Loaded()->begin_of_sequence(), -1);
  WriteJson(
      "tokenizer_config.json",
      Json{{"add_bos_token", true},
           {"bos_token", {{"content", "<|im_start|>"}, {"lstrip", false}}}});
  EXPECT_EQ(Loaded()->begin_of_sequence(), 1);
  WriteJson("tokenizer_config.json", Json{{"add_bos_token", true}});
  WriteJson("special_tokens_map.json", Json{{"bos_token", "<|endoftext|>"}});
  EXPECT_EQ(Loaded()->begin_of_sequence(), 0);
  EXPECT_THAT(*Loaded()->EncodeDocument(""), ElementsAre(0));
}

TEST_F(Folder, WhatEndsPlainTextEndsADocument) {
  Json json = Fixture("qwen.json");
  WriteJson("tokenizer.json", json);
  // A chat's turns end so, its documents do not.
  WriteJson("tokenizer_config.json", Json{{"eos_token", "<|im_start|>"}});
  EXPECT_EQ(Loaded()->end_of_document(), 0);
  EXPECT_EQ(ForHuggingFace(*Loaded()).end, 1);
  EXPECT_EQ(Loaded()->prefix_token(), 0);
  // What is generated ends with either.
  EXPECT_TRUE(Loaded()->EndsText(0));
  EXPECT_TRUE(Loaded()->EndsText(1));
  EXPECT_FALSE(Loaded()->EndsText(2));
  EXPECT_FALSE(Loaded()->EndsText(-1));
  const auto alone = LoadTokenizerFile(dir_ / "tokenizer.json").value();
  EXPECT_TRUE(alone->EndsText(0));
  EXPECT_FALSE(alone->EndsText(1));
  // Of two that end plain text the one that the folder names.
  json["added_tokens"][1]["content"] = "</s>";
  json["model"]["vocab"].erase("<|im_start|>");
  json["model"]["vocab"]["</s>"] = 1;
  WriteJson("tokenizer.json", json);
  WriteJson("tokenizer_config.json", Json{{"eos_token", "</s>"}});
  EXPECT_EQ(Loaded()->end_of_document(), 1);
  // Without one what the folder names.
  json = Fixture("qwen.json");
  json["added_tokens"].erase(0);
  WriteJson("tokenizer.json", json);
  WriteJson("tokenizer_config.json", Json{{"eos_token", "<|im_start|>"}});
  EXPECT_EQ(Loaded()->end_of_document(), 1);
}

// Corpora that were built with a file that has merges keep their end.
TEST_F(Folder, OurOwnNameEndsADocumentWhereNothingIsMerged) {
  const char kName[] = "<|end_of_document|>";
  Json json = Fixture("gpt2.json");
  json["added_tokens"][0]["content"] = kName;
  json["model"]["vocab"].erase("<|endoftext|>");
  json["model"]["vocab"][kName] = 0;
  WriteJson("tokenizer.json", json);
  const auto alone = [&] {
    return LoadTokenizerFile(dir_ / "tokenizer.json").value();
  };
  EXPECT_EQ(alone()->end_of_document(), 402);
  EXPECT_EQ(alone()->vocab_size(), 403);
  WriteJson("tokenizer_config.json", Json{{"eos_token", kName}});
  EXPECT_EQ(Loaded()->end_of_document(), 0);
  json["model"]["merges"] = Json::array();
  WriteJson("tokenizer.json", json);
  EXPECT_EQ(alone()->end_of_document(), 0);
  EXPECT_EQ(alone()->vocab_size(), 402);
}

TEST_F(Folder, AModelIsTakenWhereTheJsonIsOfAnotherKind) {
  Json json = Fixture("llama3.json");
  json["pre_tokenizer"] = nullptr;
  WriteJson("tokenizer.json", json);
  EXPECT_THAT(Refused(), AllOf(HasSubstr(dir_ / "tokenizer.json"),
                               HasSubstr("pre_tokenizer null")));
  Write("tokenizer.model", LlamasModel());
  EXPECT_STREQ(Loaded()->kind(), "sentencepiece");
  // Llama's <s>, which transformers puts there unless told otherwise.
  EXPECT_EQ(Loaded()->begin_of_sequence(), 1);
  EXPECT_EQ(Loaded()->end_of_document(), 2);
  EXPECT_EQ(Loaded()->TokenBytes(1), "");
  const auto ids = Loaded()->EncodeDocument("the slab").value();
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(Loaded()->Decode(ids), " the slab");
  WriteJson("tokenizer_config.json", Json{{"tokenizer_class", "T5Tokenizer"}});
  EXPECT_EQ(Loaded()->begin_of_sequence(), -1);
  WriteJson("tokenizer_config.json",
            Json{{"tokenizer_class", "LlamaTokenizerFast"},
                 {"bos_token", "<s>"},
                 {"add_bos_token", false}});
  EXPECT_EQ(Loaded()->begin_of_sequence(), -1);
  EXPECT_EQ(Loaded()->prefix_token(), 1);
  Write("tokenizer.model", "nothing");
  EXPECT_THAT(Refused(), AllOf(HasSubstr("pre_tokenizer null"),
                               HasSubstr(dir_ / "tokenizer.model")));
}

TEST_F(Folder, WhatCannotBePutInFrontIsRefused) {
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refused(), AllOf(HasSubstr(dir_.path()),
                               HasSubstr("neither tokenizer.json nor")));
  WriteJson("tokenizer.json", Fixture("gpt2.json"));
  Write("tokenizer_config.json", std::string("[]"));
  EXPECT_THAT(Refused(), HasSubstr("tokenizer_config.json is no JSON object"));
  WriteJson("tokenizer_config.json",
            Json{{"add_bos_token", true}, {"bos_token", "<s>"}});
  EXPECT_THAT(Refused(), HasSubstr("puts \"<s>\" in front of a text, but that "
                                   "is none of its special tokens"));
  WriteJson("tokenizer_config.json", Json{{"add_bos_token", true}});
  EXPECT_THAT(Refused(), HasSubstr("puts \"\" in front"));
  WriteJson("tokenizer_config.json", Json::object());
  Json json = Fixture("gpt2.json");
  json["post_processor"] = PutsInFront({"<|im_start|>", "<|endoftext|>"});
  WriteJson("tokenizer.json", json);
  EXPECT_THAT(Refused(), HasSubstr("puts 2 tokens in front"));
}

TEST_F(Folder, AllFilesTravelAndGoOutAgain) {
  Json json = Fixture("gpt2.json");
  json["post_processor"] = PutsInFront({"<|im_start|>"});
  const TokenizerFiles files = {
      {"tokenizer.json", json.dump(2)},
      {"tokenizer.model", LlamasModel()},
      {"tokenizer_config.json", "{\n\"bos_token\": \"<|im_start|>\"}"},
      {"special_tokens_map.json", "{}"},
      {"chat_template.jinja", ""}};
  for (const auto& [name, bytes] : files) Write(name, bytes);
  Write("vocab.json", std::string("{}"));
  const auto tokenizer = Loaded();
  const auto again = LoadTokenizer(tokenizer->Serialize(), "corpus");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->Serialize(), tokenizer->Serialize());
  EXPECT_EQ((*again)->begin_of_sequence(), 1);
  EXPECT_EQ(*(*again)->Encode("the slab"), *tokenizer->Encode("the slab"));
  const HuggingFaceTokenizer out = ForHuggingFace(**again);
  EXPECT_EQ(out.files, files);
  EXPECT_EQ(out.begin, 1);
  EXPECT_EQ(out.end, 0);
}

TEST_F(Folder, WhatTravelledDamagedIsRefused) {
  const std::string packed =
      PackFiles({{"tokenizer.json", "{}"}, {"tokenizer_config.json", "{\n}"}});
  ASSERT_EQ(UnpackFiles(packed, "x")->size(), 2u);
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(UnpackFiles(packed.substr(0, size), "x").ok()) << size;
  }
  EXPECT_FALSE(UnpackFiles(packed + " ", "x").ok());
  for (const char* lines :
       {"tokenizer.json 2\ntokenizer.json 2\n\n{}{}",
        "../tokenizer.json 2\n\n{}", "tokenizer.json -2\n\n{}",
        "tokenizer.json\n\n{}", "tokenizer.json 99999999999999999999\n\n{}",
        "tokenizer.json 18446744073709551615\n\n{}"}) {
    const auto files =
        UnpackFiles(std::string("delink tokenizer: files\n") + lines, "x");
    EXPECT_THAT(std::string(files.status().message()),
                AllOf(HasSubstr("x: "), HasSubstr("is damaged")))
        << lines;
  }
  const auto none = LoadTokenizer("delink tokenizer: files\n\n", "x");
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("x: has neither tokenizer.json nor tokenizer.model"));
}

TEST(HuggingFaceFiles, AFileThatWasGivenAloneGetsAConfig) {
  Json json = Fixture("llama3.json");
  auto tokenizer = LoadTokenizer(json.dump(), "x").value();
  HuggingFaceTokenizer out = ForHuggingFace(*tokenizer);
  EXPECT_EQ(out.files.at("tokenizer.json"), json.dump());
  json["post_processor"] = PutsInFront({"<|im_start|>"});
  tokenizer = LoadTokenizer(json.dump(), "x").value();
  out = ForHuggingFace(*tokenizer);
  json["post_processor"] = nullptr;
  EXPECT_EQ(Json::parse(out.files.at("tokenizer.json")), json);
  Json config = Json::parse(out.files.at("tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["add_bos_token"], false);
  EXPECT_EQ(out.begin, -1);
  EXPECT_EQ(out.end, 0);

  tokenizer = LoadTokenizer(LlamasModel(), "x").value();
  out = ForHuggingFace(*tokenizer);
  EXPECT_EQ(out.files.at("tokenizer.model"), LlamasModel());
  config = Json::parse(out.files.at("tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], "</s>");
  EXPECT_EQ(out.end, 2);

  EXPECT_FALSE(out.files.contains("tokenizer.json"));

  out = ForHuggingFace(*MakeIdsTokenizer(10, 9));
  EXPECT_TRUE(out.files.empty());
  EXPECT_EQ(out.end, 9);
}

TEST_F(Folder, ATrainedModelGoesOutInTheLibrarysWordsToo) {
  std::vector<std::string> lines;
  for (uint64_t i = 0; i < 40; ++i) lines.push_back(testing::SampleText(i, 99));
  size_t next = 0;
  for (std::string& line : lines) std::erase(line, '\n');
  const auto trained = TrainTokenizer({.vocab = 330}, [&](std::string* line) {
    if (next == lines.size()) return false;
    *line = lines[next++];
    return true;
  });
  ASSERT_TRUE(trained.ok()) << trained.status();
  const HuggingFaceTokenizer out = ForHuggingFace(**trained);
  EXPECT_EQ(out.end, 1);
  EXPECT_EQ(out.files.at("tokenizer.model"), (*trained)->Serialize());
  const Json json = Json::parse(out.files.at("tokenizer.json"));
  EXPECT_EQ(json["model"]["type"], "Unigram");
  EXPECT_EQ(json["model"]["unk_id"], 0);
  ASSERT_EQ(json["model"]["vocab"].size(), 330u);
  EXPECT_EQ(json["model"]["vocab"][2][0], "\n");
  EXPECT_LT(json["model"]["vocab"][300][1], -1);
  ASSERT_EQ(json["added_tokens"].size(), 2u);
  EXPECT_EQ(json["added_tokens"][1]["content"], "</s>");
  // The folder of them is read by the model.
  for (const auto& [name, bytes] : out.files) Write(name, bytes);
  EXPECT_EQ(Loaded()->begin_of_sequence(), -1);
  EXPECT_EQ(Loaded()->end_of_document(), 1);
  EXPECT_EQ(*Loaded()->Encode(lines[0]), *(*trained)->Encode(lines[0]));
}

TEST_F(Folder, BytesGoOutAsATokenizerOfBytes) {
  const auto bytes = MakeByteTokenizer();
  const HuggingFaceTokenizer out = ForHuggingFace(*bytes);
  for (const auto& [name, text] : out.files) Write(name, text);
  const auto back = Loaded();
  EXPECT_EQ(back->vocab_size(), 257);
  EXPECT_EQ(back->end_of_document(), 256);
  EXPECT_EQ(back->begin_of_sequence(), -1);
  const std::string text = testing::SampleText(3, 2000);
  EXPECT_EQ(*back->Encode(text), *bytes->Encode(text));
  // So does the one file of them.
  EXPECT_EQ(
      LoadTokenizerFile(dir_ / "tokenizer.json").value()->end_of_document(),
      256);
}

}  // namespace
}  // namespace delink::folder_tokenizer_test
