// Multiple-choice files, and the seam between a question and an option.
#include "recipes/saved/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

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

TEST(EncodeChoiceTest, WhatComesAfterTheQuestionsTokensIsTheOption) {
  const struct {
    const char *question, *option;
    std::vector<std::string> words;  // "": the start of a document
    int64_t of_option;
    int32_t begin = -1;  // of a sequence
    int64_t positions = 10;
    bool truncated = false;
  } cases[] = {
      {"who is", " in it", {"who", " is", " in", " it"}, 2},
      // White space at the end of the question goes to the option.
      {"who is ", "in", {"who", " is", " in"}, 1},
      // The harness keeps the question's own tokens, though the whole has
      // others: "to", " undo", " it".
      {"to un", "do it", {"to", " un", " it"}, 1},
      {"", "who is", {"", "who", " is"}, 2},
      {"who is", " in it", {"", "who", " is", " in", " it"}, 2, 998},
      {"", "who is", {"", "who", " is"}, 2, 998},
      // Three inputs, and the last target.
      {"a b c d e", " f g", {" d", " e", " f", " g"}, 2, -1, 3, true},
      {"a b", " f g", {"a", " b", " f", " g"}, 2, -1, 3},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.question);
    Words words;
    words.begin = c.begin;
    const auto choice = EncodeChoice(words, c.question, c.option, c.positions);
    ASSERT_TRUE(choice.ok()) << choice.status();
    std::vector<int32_t> ids;
    for (const std::string& word : c.words) {
      ids.push_back(word.empty() ? words.prefix_token() : Words::IdOf(word));
    }
    EXPECT_EQ(choice->tokens, ids);
    EXPECT_EQ(choice->option, c.of_option);
    EXPECT_EQ(choice->truncated, c.truncated);
  }
}

TEST(EncodeChoiceTest, ThereMustBeSomethingToScoreThatFits) {
  const auto none = EncodeChoice(Words(), "to un", "do", 10);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  const auto too_long = EncodeChoice(Words(), "a", " b c d e", 3);
  EXPECT_EQ(too_long.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_long.status().message()),
              HasSubstr("has 4 tokens, but the model reads 3"));
}

}  // namespace
}  // namespace delink::choices_test
