#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "data/tokenizer/utf8.h"

namespace delink::tokenizer_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Repeatable prose of a small invented language, a line at a time.
std::function<bool(std::string*)> Prose(int lines) {
  const std::vector<std::string> words = {
      "the",   "horse", "runs",  "over",  "green", "fields",
      "und",   "Wiese", "kůň",   "běží",  "slow",  "quick",
      "12",    "x+y",   "house", "river", "under", "sing",
      "sings", "song",  "green", "ness",  "light", "lightly"};
  auto random = std::make_shared<std::mt19937_64>(7);
  return [=, left = lines](std::string* line) mutable {
    if (left-- == 0) return false;
    line->clear();
    for (int i = 0; i < 12; ++i) {
      *line += words[(*random)() % words.size()];
      if ((*random)() % 3 == 0) *line += words[(*random)() % words.size()];
      *line += i == 11 ? "." : " ";
    }
    return true;
  };
}

std::vector<std::string> HardTexts() {
  std::string controls;
  for (int c = 0; c < 128; ++c) controls += static_cast<char>(c);
  return {
      "",
      " ",
      "   two   spaces  ",
      "\n\n\nlines\r\n\tand tabs\n",
      "the horse runs over green fields",
      "\xE2\x96\x81marker\xE2\x96\x81\xE2\x96\x81 and \xE2\x96\x85",
      "</s> <s> <unk> <pad> <0x41> <0xFF>",
      "日本語のテキスト、中文字符 한국어",
      "👩‍👩‍👧‍👦 🐎🏽 e\xCC\x81 \xEF\xBF\xBD \xC2\xA0",
      controls,
      std::string("a\0b", 3),
  };
}

class Kinds : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "bytes") {
      tokenizer_ = MakeByteTokenizer();
      return;
    }
    auto trained = TrainTokenizer({.vocab = 400}, Prose(400));
    ASSERT_TRUE(trained.ok()) << trained.status();
    tokenizer_ = *std::move(trained);
    EXPECT_EQ(tokenizer_->vocab_size(), 400);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(Kinds, EveryTextRoundTrips) {
  std::vector<std::string> texts = HardTexts();
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string text;
    const std::vector<std::string> parts = HardTexts();
    for (int k = 0; k < 4; ++k) {
      const std::string& part = parts[random() % parts.size()];
      const size_t from = CharacterBoundary(part, random() % (part.size() + 1));
      text += part.substr(from);
    }
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    const auto ids = tokenizer_->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    for (const int32_t id : *ids) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer_->vocab_size());
      ASSERT_NE(id, tokenizer_->end_of_document());
    }
    ASSERT_EQ(tokenizer_->Decode(*ids), text);
  }
}

TEST_P(Kinds, SerializedTokenizerIsTheSame) {
  const auto loaded = LoadTokenizer(tokenizer_->Serialize(), "test");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_STREQ((*loaded)->kind(), tokenizer_->kind());
  EXPECT_EQ((*loaded)->vocab_size(), tokenizer_->vocab_size());
  EXPECT_EQ((*loaded)->end_of_document(), tokenizer_->end_of_document());
  for (const std::string& text : HardTexts()) {
    EXPECT_EQ(*(*loaded)->Encode(text), *tokenizer_->Encode(text));
  }
}

TEST_P(Kinds, LinesMayBeEncodedApart) {
  const std::string a = "the horse runs\n", b = " over green\n fields";
  std::vector<int32_t> apart = *tokenizer_->Encode(a);
  ASSERT_TRUE(tokenizer_->Encode(b, &apart).ok());
  EXPECT_EQ(apart, *tokenizer_->Encode(a + b));
}

TEST_P(Kinds, StreamsWholeCharactersOnly) {
  for (const std::string& text : HardTexts()) {
    StreamDecoder decoder(*tokenizer_);
    std::string out;
    const std::vector<int32_t> ids = tokenizer_->Encode(text).value();
    for (const int32_t id : ids) {
      const std::string piece = decoder.Push(id);
      ASSERT_TRUE(CheckUtf8(piece).ok());
      out += piece;
    }
    EXPECT_EQ(decoder.Push(tokenizer_->end_of_document()), "");
    EXPECT_EQ(decoder.Finish(), "");
    EXPECT_EQ(out, text);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Kinds,
                         ::testing::Values("bytes", "sentencepiece"));

TEST(StreamDecoder, BrokenCharactersAreReplaced) {
  const auto bytes = MakeByteTokenizer();
  StreamDecoder decoder(*bytes);
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push('a'),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(decoder.Push(0xE2), "");
  EXPECT_EQ(decoder.Finish(), "\xEF\xBF\xBD");
}

TEST(SentencePiece, TrainingIsRepeatableAndCompresses) {
  const auto a = TrainTokenizer({.vocab = 400}, Prose(400));
  const auto b = TrainTokenizer({.vocab = 400}, Prose(400));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->Serialize(), (*b)->Serialize());
  const std::string text = "the horse runs over green fields";
  EXPECT_LT((*a)->Encode(text)->size(), text.size() / 2);
}

TEST(SentencePiece, TextThatIsNotUtf8IsRefusedByOffset) {
  const auto tokenizer = TrainTokenizer({.vocab = 400}, Prose(400));
  ASSERT_TRUE(tokenizer.ok());
  const absl::Status status = (*tokenizer)->Encode("abc\xFFz").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte 3"));
}

TEST(SentencePiece, ImpossibleTrainingIsAStatus) {
  EXPECT_THAT(
      std::string(TrainTokenizer({.vocab = 100}, Prose(10)).status().message()),
      AllOf(HasSubstr("--train-tokenizer 100"), HasSubstr("259")));
  const absl::Status large =
      TrainTokenizer({.vocab = 50'000}, Prose(10)).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(large.message()), HasSubstr("50000"));
  EXPECT_FALSE(TrainTokenizer({.vocab = 300}, Prose(0)).ok());
}

TEST(SentencePiece, FilesThatAreNoModelAreRefused) {
  for (const std::string bytes : {"", "no model", "\n\n\n"}) {
    const absl::Status status = LoadTokenizer(bytes, "x.model").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("x.model"));
  }
  EXPECT_EQ(LoadTokenizerFile("/nonexistent.model").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace delink::tokenizer_test
