// tokenizer.json: ids beside those of the library that defines them, kept in
// tokenizers/ (made by make.py there), and what is refused.
#include "data/tokenizer/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "data/tokenizer/nfc.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/text_samples.h"
#include "tests/testing/source_path.h"

namespace delink::bpe_tokenizer_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string Fixture(const std::string& name) {
  return testing::ReadOrDie(testing::SourcePath("tests/data/tokenizers/") +
                            name);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<int32_t> Numbers(const std::string& line) {
  std::istringstream stream(line);
  std::vector<int32_t> numbers;
  for (int32_t number = 0; stream >> number;) numbers.push_back(number);
  return numbers;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadJson(const Json& json) {
  return LoadTokenizer(json.dump(), "x.json");
}

class Kinds : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded =
        LoadTokenizer(Fixture(std::string(GetParam()) + ".json"), "fixture");
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = *std::move(loaded);
    lines_ = Lines(Fixture("lines.txt"));
    for (const std::string& line :
         Lines(Fixture(std::string(GetParam()) + ".ids"))) {
      ids_.push_back(Numbers(line));
    }
    ASSERT_EQ(lines_.size(), ids_.size());
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> lines_;
  std::vector<std::vector<int32_t>> ids_;
};

TEST_P(Kinds, IdsAreThoseOfTheLibrary) {
  EXPECT_EQ(tokenizer_->TokenBytes(tokenizer_->end_of_document()), "");
  // Twice: words come from the cache the second time.
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const auto ids = tokenizer_->Encode(lines_[i]);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, ids_[i]) << lines_[i];
    }
  }
}

TEST_P(Kinds, TextComesBack) {
  const bool nfc = std::string(GetParam()) == "qwen";
  for (size_t i = 0; i < lines_.size(); ++i) {
    EXPECT_EQ(tokenizer_->Decode(ids_[i]), nfc ? Nfc(lines_[i]) : lines_[i]);
  }
}

TEST_P(Kinds, ThreadsMayEncodeAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this] {
      for (size_t i = 0; i < lines_.size(); ++i) {
        EXPECT_EQ(*tokenizer_->Encode(lines_[i]), ids_[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Kinds, TextNeverHoldsTheEndOfADocument) {
  const std::string text = "a<|endoftext|>b";
  const auto ids = tokenizer_->Encode(text);
  ASSERT_TRUE(ids.ok());
  for (const int32_t id : *ids) EXPECT_NE(id, tokenizer_->end_of_document());
  EXPECT_EQ(tokenizer_->Decode(*ids), text);
  EXPECT_FALSE(tokenizer_->Encode("abc\xFF").ok());
}

INSTANTIATE_TEST_SUITE_P(Bpe, Kinds,
                         ::testing::Values("gpt2", "llama3", "qwen", "cases",
                                           "sequence"));

class Bpe : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& what) {
    const absl::Status status = LoadJson(json_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("x.json: "), HasSubstr(what)));
    json_ = Json::parse(Fixture("qwen.json"));
  }
  Json json_ = Json::parse(Fixture("qwen.json"));
};

TEST_F(Bpe, MergesMayBePairsOrTexts) {
  const std::vector<std::string> lines = Lines(Fixture("lines.txt"));
  const auto pairs = LoadJson(json_).value();
  ASSERT_TRUE(json_["model"]["merges"][0].is_array());
  for (Json& merge : json_["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  json_["model"].erase("type");  // as early files
  const auto texts = LoadJson(json_);
  ASSERT_TRUE(texts.ok()) << texts.status();
  for (const std::string& line : lines) {
    EXPECT_EQ(*pairs->Encode(line), *(*texts)->Encode(line));
  }
}

TEST_F(Bpe, AFileWithoutAnEndOfDocumentGetsOne) {
  const auto with = LoadJson(json_).value();
  EXPECT_EQ(with->end_of_document(), 0);
  json_["added_tokens"].erase(0);
  const auto without = LoadJson(json_).value();
  EXPECT_EQ(without->vocab_size(), with->vocab_size() + 1);
  EXPECT_EQ(without->end_of_document(), with->vocab_size());
}

TEST_F(Bpe, WordsThatAreTokensAreTakenWholeWhereTheFileSaysSo) {
  Json& model = json_["model"];
  const int32_t id = static_cast<int32_t>(model["vocab"].size());
  model["vocab"]["zqzq"] = id;
  for (Json& token : json_["added_tokens"]) {
    if (token["id"] >= id) token["id"] = token["id"].get<int>() + 1;
  }
  EXPECT_EQ(LoadJson(json_).value()->Encode("zqzq")->size(), 4U);
  model["ignore_merges"] = true;
  EXPECT_EQ(*LoadJson(json_).value()->Encode("zqzq"), std::vector<int32_t>{id});
  // A token that is not spelt in bytes is no word of any text.
  model["vocab"].erase("zqzq");
  model["vocab"]["\u56fd"] = id;
  EXPECT_EQ(LoadJson(json_).value()->Encode("\u56fd")->size(), 3U);
}

TEST_F(Bpe, WhatIsNotSupportedIsNamed) {
  json_["model"]["type"] = "WordPiece";
  ExpectRefused("model WordPiece is not supported");
  json_["model"]["dropout"] = 0.1;
  ExpectRefused("model: dropout");
  json_["model"]["end_of_word_suffix"] = "</w>";
  ExpectRefused("model: end_of_word_suffix");
  json_["model"]["vocab"].erase("Ġ");
  ExpectRefused("a vocabulary without byte 32");
  json_["normalizer"]["type"] = "NFKC";
  ExpectRefused("normalizer NFKC");
  json_["normalizer"] = {{"type", "Sequence"},
                         {"normalizers", {{{"type", "Lowercase"}}}}};
  ExpectRefused("normalizer Lowercase");
  json_["pre_tokenizer"] = {{"type", "Whitespace"}};
  ExpectRefused("pre_tokenizer Whitespace");
  json_["pre_tokenizer"] = nullptr;
  ExpectRefused("pre_tokenizer null is not supported");
  json_["pre_tokenizer"] = {{"sort", "ByteLevel"}};
  ExpectRefused("pre_tokenizer without a type is not supported");
  json_["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
  ExpectRefused("pre_tokenizer ByteLevel with add_prefix_space");
}

TEST_F(Bpe, CutsThatAreNotSupportedAreNamed) {
  const auto first = [this]() -> Json& {
    return json_["pre_tokenizer"]["pretokenizers"][0];
  };
  first()["behavior"] = "MergedWithNext";
  ExpectRefused("Split with behavior MergedWithNext");
  json_["pre_tokenizer"]["pretokenizers"].erase(1);
  ExpectRefused("does not end in ByteLevel");
  const std::pair<const char*, const char*> patterns[] = {
      {R"(\w+)", R"(the pattern has \w)"},
      {R"([a[b]])", "[ within [...]"},
      {R"([a&&b])", "&& within"},
      {R"((?s:a))", "(?s:"},
      {R"(a{1,3}+)", "{1,3}+"},
      {R"(a{,3})", "{,3}"},
      {R"(\d{3}?)", "{3}?"},
      {R"({\w})", R"(\w)"},
      {R"((*FAIL))", "(*"},
      {R"([]a])", "] as the first"},
      {R"([\x80-\xff]+)", R"(\x80, which is not ASCII)"},
      {R"(\p{L&})", R"(\p{L&})"},
      {R"(\p{Alphabetic}+)", R"(\p{Alphabetic})"},
      {R"([^\p{sc:Han}])", R"(\p{sc:Han})"},
      {R"((?i:k|ss))", "ss within (?i:...)"},
      {R"((?i:a(?:fi)))", "fi within (?i:...)"},
      {R"((?i:\p{L}))", R"(\p within (?i:...))"},
      {R"((?i:[aß]))", "beyond ASCII within (?i:...)"},
      {R"([a)", "[ without ]"},
      {R"((a)", "an error: "},
      {R"(a\)", R"(\ as its last)"}};
  for (const auto& [pattern, what] : patterns) {
    first()["pattern"]["Regex"] = pattern;
    ExpectRefused(what);
  }
}

TEST_F(Bpe, DamagedFilesAreRefused) {
  EXPECT_THAT(
      std::string(LoadTokenizer("{\"model\": ", "x").status().message()),
      HasSubstr("x: begins like JSON but is not"));
  json_.erase("model");
  ExpectRefused("it has no model");
  json_["model"]["merges"].push_back({"zz", "q"});
  ExpectRefused("does not make a third token of two");
  json_["model"]["vocab"]["\"other"] = 5;
  ExpectRefused("has no id of its own");
  json_["model"]["vocab"]["\"other"] = 1 << 24;
  ExpectRefused("has no id of its own");
  json_["added_tokens"][0]["id"] = 7;
  ExpectRefused("id 7 is that of another token");
  json_["added_tokens"][0]["lstrip"] = true;
  ExpectRefused("added token \"<|endoftext|>\" with lstrip");
  json_["decoder"]["type"] = "WordPiece";
  ExpectRefused("decoder WordPiece");
}

// What Oniguruma takes for white space, and what PCRE2 does without being told.
TEST(SplitPattern, WhiteSpaceIsUnicodes) {
  const auto pattern = SplitPattern::Compile(R"([\s])");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  SplitPattern::Matcher matcher;
  for (const char* space : {" ", "\t", "\v", "\xC2\x85", "\xC2\xA0",
                            "\xE3\x80\x80", "\xE2\x80\xA8"}) {
    EXPECT_TRUE(pattern->Find(space, 0, matcher)->has_value()) << space;
  }
  for (const char* other : {"\xE1\xA0\x8E", "\xE2\x80\x8B", "\xEF\xBB\xBF"}) {
    EXPECT_FALSE(pattern->Find(other, 0, matcher)->has_value()) << other;
  }
}

TEST(SplitPattern, LongRunsAreNoTrouble) {
  const auto pattern = SplitPattern::Compile(R"(\s+(?!\S)|\s+|(?:ab)+)");
  SplitPattern::Matcher matcher;
  const std::string text = std::string(1 << 20, ' ') + "x";
  const auto found = pattern->Find(text, 0, matcher);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->end, text.size() - 2);
}

// As the library cuts: between characters, too, and nothing twice.
TEST_F(Bpe, EmptyMatchesCut) {
  const auto whole = LoadJson(json_).value();
  json_["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      R"((?=(he)+(?!h)))";
  const auto cut = LoadJson(json_);
  ASSERT_TRUE(cut.ok()) << cut.status();
  std::vector<int32_t> ids;
  for (const char* word : {"xt", "he", "he"}) {
    const std::vector<int32_t> some = *whole->Encode(word);
    ids.insert(ids.end(), some.begin(), some.end());
  }
  EXPECT_NE(*whole->Encode("xthehe"), ids);
  EXPECT_EQ(*(*cut)->Encode("xthehe"), ids);
}

TEST(SplitPattern, AnEmptyMatchCutsNothingOffWhereItBegins) {
  const auto pattern = SplitPattern::Compile("b*");
  SplitPattern::Matcher matcher;
  size_t at = 0;
  for (const auto& [begin, end] :
       {std::pair<size_t, size_t>{2, 2}, {3, 5}, {6, 6}}) {
    const auto found = pattern->Find("\xC3\xA9xbb--", at, matcher);
    ASSERT_TRUE(found.ok() && found->has_value());
    EXPECT_EQ((*found)->begin, begin);
    EXPECT_EQ((*found)->end, end);
    at = (*found)->end;
  }
  EXPECT_FALSE(pattern->Find("x", 1, matcher)->has_value());
}

// A script, not what other scripts share with it.
TEST(SplitPattern, ScriptsAreWithoutTheirExtensions) {
  SplitPattern::Matcher matcher;
  const auto find = [&](const char* pattern, const char* text) {
    const auto compiled = SplitPattern::Compile(pattern);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return compiled.ok() && compiled->Find(text, 0, matcher)->has_value();
  };
  const char* const full_stop = "\xE3\x80\x82";  // shared by Han and others
  EXPECT_TRUE(find(R"(\p{Han})", "\xE6\xBC\xA2"));
  EXPECT_FALSE(find(R"(\p{Han})", full_stop));
  EXPECT_TRUE(find(R"([\P{Han}])", full_stop));
  EXPECT_TRUE(find(R"([\p{^Han}])", full_stop));
  EXPECT_FALSE(find(R"(\P{^L})", full_stop));
}

// Those of GPT-2, Llama 3, Qwen, DeepSeek and GPT-4o.
TEST(SplitPattern, PatternsOfModelsAreTaken) {
  for (const char* pattern :
       {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
        R"(|\s+(?!\S)|\s+)",
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
        R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        R"(\s?[!-/:-~\uff01-\uff0f]+)", R"(\s+$)", "[\u4e00-\u9fa5]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
        R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
        R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"}) {
    const auto compiled = SplitPattern::Compile(pattern);
    EXPECT_TRUE(compiled.ok()) << pattern << ": " << compiled.status();
  }
}

TEST(Nfc, ComposesWhatCanBe) {
  EXPECT_EQ(Nfc("caf\x65\xCC\x81!"), "caf\xC3\xA9!");
  EXPECT_EQ(Nfc("\xCC\x81x"), "\xCC\x81x");
  EXPECT_EQ(Nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C");
  // A mark after a letter that is composed already.
  EXPECT_EQ(Nfc("\xC3\xA2\xCC\x81"), "\xE1\xBA\xA5");
  EXPECT_EQ(Nfc("plain \xC3\xA9"), "plain \xC3\xA9");
}

}  // namespace
}  // namespace delink::bpe_tokenizer_test
