// Multiple-choice files, and the seam between a question and an option.
#include "recipes/saved/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "tests/recipes/saved/words.h"
#include "tests/testing/temp_dir.h"

namespace delink::choices_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReadChoicesTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<ChoiceQuestion>> Read(const std::string& text) {
    EXPECT_TRUE(WriteFile(dir_ / "q.jsonl", text).ok());
    return ReadChoices(dir_ / "q.jsonl");
  }
  testing::TempDir dir_;
};

TEST_F(ReadChoicesTest, KeepsTheNumbersOfLines) {
  const auto read = Read(
      "{\"question\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": 1}\n"
      "  \n"
      "{\"id\": 7, \"answer\": 0, \"options\": [\"\\u00e9\", \"d\", \"e\"], "
      "\"question\": \"\"}");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].line, 1);
  EXPECT_EQ((*read)[0].answer, 1);
  EXPECT_EQ((*read)[1].line, 3);
  EXPECT_THAT((*read)[1].options, ElementsAre("\xc3\xa9", "d", "e"));
}

TEST_F(ReadChoicesTest, NamesEveryWrongLine) {
  const std::string good =
      "{\"question\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": 1}\n";
  const std::string text =
      good + "{\"question\": \"a\"\n" + good +
      "{\"question\": 1, \"options\": [\"b\", \"c\"], \"answer\": 1}\n"
      "{\"question\": \"a\", \"options\": [\"b\"], \"answer\": 0}\n"
      "{\"question\": \"a\", \"options\": [\"b\", 3], \"answer\": 0}\n"
      "{\"question\": \"a\", \"options\": [\"b\", \"\"], \"answer\": 0}\n"
      "{\"question\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": 2}\n"
      "{\"question\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": -1}\n"
      "{\"question\": \"a\", \"options\": [\"b\", \"c\"], \"answer\": 1.0}\n"
      "{\"question\": \"\xff\", \"options\": [\"b\", \"c\"], \"answer\": 1}\n";
  const absl::Status status = Read(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("q.jsonl:2: the line is no JSON object"),
            HasSubstr("q.jsonl:4: the line has no `question`"),
            HasSubstr("q.jsonl:5: the line has no `options`"),
            HasSubstr("q.jsonl:6: the line options[1] is no text"),
            HasSubstr("q.jsonl:7: the line options[1] is empty"),
            HasSubstr("q.jsonl:8: the line has the answer 2, but 2"),
            HasSubstr("q.jsonl:9: the line has the answer -1"),
            HasSubstr("q.jsonl:10: the line has no `answer`"),
            HasSubstr("q.jsonl:11: the line is no JSON object"),
            Not(HasSubstr("q.jsonl:1: ")), Not(HasSubstr("more lines"))));
}

TEST_F(ReadChoicesTest, OfManyWrongLinesSomeAreShown) {
  std::string text;
  for (int i = 0; i < 25; ++i) text += "{}\n";
  const absl::Status status = Read(text).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(":10: "), Not(HasSubstr(":11: ")),
                    HasSubstr("and 15 more lines")));
}

TEST_F(ReadChoicesTest, AnEmptyFileIsAnError) {
  EXPECT_EQ(Read("\n \n").status().code(), absl::StatusCode::kInvalidArgument);
}

using testing::Words;

int32_t Id(std::string_view word) { return Words::IdOf(word); }

TEST(EncodeChoiceTest, WhatComesAfterTheQuestionsTokensIsTheOption) {
  const auto choice = EncodeChoice(Words(), "who is", " in it", 10);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->tokens,
              ElementsAre(Id("who"), Id(" is"), Id(" in"), Id(" it")));
  EXPECT_EQ(choice->option, 2);
  EXPECT_FALSE(choice->truncated);
}

TEST(EncodeChoiceTest, WhiteSpaceAtTheEndOfTheQuestionGoesToTheOption) {
  const auto choice = EncodeChoice(Words(), "who is ", "in", 10);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->tokens, ElementsAre(Id("who"), Id(" is"), Id(" in")));
  EXPECT_EQ(choice->option, 1);
}

// The harness keeps the question's own tokens, though the whole has others.
TEST(EncodeChoiceTest, TheTokenAcrossTheSeamIsSplitAsTheHarnessDoes) {
  const auto choice = EncodeChoice(Words(), "to un", "do it", 10);
  ASSERT_TRUE(choice.ok()) << choice.status();
  // The whole: "to", " undo", " it".
  EXPECT_THAT(choice->tokens, ElementsAre(Id("to"), Id(" un"), Id(" it")));
  EXPECT_EQ(choice->option, 1);
  // With nothing behind it nothing is left to score.
  const auto none = EncodeChoice(Words(), "to un", "do", 10);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EncodeChoiceTest, AnEmptyQuestionIsTheStartOfADocument) {
  const auto choice = EncodeChoice(Words(), "", "who is", 10);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->tokens, ElementsAre(999, Id("who"), Id(" is")));
  EXPECT_EQ(choice->option, 2);
}

TEST(EncodeChoiceTest, ABeginOfSequenceIsInFrontOnce) {
  Words words;
  words.begin = 998;
  auto choice = EncodeChoice(words, "who is", " in it", 10);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->tokens,
              ElementsAre(998, Id("who"), Id(" is"), Id(" in"), Id(" it")));
  EXPECT_EQ(choice->option, 2);
  choice = EncodeChoice(words, "", "who is", 10);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_THAT(choice->tokens, ElementsAre(998, Id("who"), Id(" is")));
  EXPECT_EQ(choice->option, 2);
}

TEST(EncodeChoiceTest, TheBeginningOfALongQuestionIsLeftOut) {
  const auto choice = EncodeChoice(Words(), "a b c d e", " f g", 3);
  ASSERT_TRUE(choice.ok()) << choice.status();
  // Three inputs, and the last target.
  EXPECT_THAT(choice->tokens,
              ElementsAre(Id(" d"), Id(" e"), Id(" f"), Id(" g")));
  EXPECT_EQ(choice->option, 2);
  EXPECT_TRUE(choice->truncated);
  const auto fits = EncodeChoice(Words(), "a b", " f g", 3);
  ASSERT_TRUE(fits.ok());
  EXPECT_FALSE(fits->truncated);
  const auto too_long = EncodeChoice(Words(), "a", " b c d e", 3);
  EXPECT_EQ(too_long.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_long.status().message()),
              HasSubstr("has 4 tokens, but the model reads 3"));
}

}  // namespace
}  // namespace delink::choices_test
