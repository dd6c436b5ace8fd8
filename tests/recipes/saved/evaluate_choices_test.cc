// Scores of options beside another way to find them: token by token, with a
// cache (recipes/saved/generate.h).
#include "recipes/saved/evaluate_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/recipes/saved/log_probability.h"

namespace delink::testing::evaluate_choices_test {
namespace {

using ::testing::HasSubstr;

constexpr char kQuestions[] =
    "{\"question\": \"the slab of a\", \"options\": [\"layer\", \"weights\", "
    "\"zebra!\"], \"answer\": 1}\n"
    "{\"question\": \"moves.\", \"options\": [\"holds its weights and\", "
    "\"\xc3\xa9\xc3\xa9\"], \"answer\": 0}\n"
    "{\"question\": \"\", \"options\": [\"the slab\", \"x\"], \"answer\": 1}\n"
    "{\"question\": \"its weights and its weights and its weights and its\", "
    "\"options\": [\"layer\", \"slab\", \"of\", \"and\"], \"answer\": 3}\n";

class EvaluateChoicesTest : public ::testing::TestWithParam<const char*> {
 protected:
  EvaluateChoicesTest() : runs_(GetParam()) {
    EXPECT_TRUE(runs_.Run({.sets = {"optimizer.lr=0.01"}, .out = "run"}).ok());
    EXPECT_TRUE(WriteFile(File(), kQuestions).ok());
  }
  std::string File() const { return runs_.Folder("questions.jsonl"); }

  absl::StatusOr<ChoiceEvaluation> Evaluate(Communicator& comm,
                                            DType dtype = DType::kF32) const {
    return EvaluateChoices(
        {.checkpoint = runs_.Folder("run"), .choices = File(), .dtype = dtype},
        BuiltInModels(), comm);
  }
  ChoiceEvaluation Alone(DType dtype = DType::kF32) const {
    SelfCommunicator self;
    absl::StatusOr<ChoiceEvaluation> found = Evaluate(self, dtype);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *std::move(found) : ChoiceEvaluation();
  }
  TinyRuns runs_;
};

TEST_P(EvaluateChoicesTest, ScoresAreThoseOfTheGenerator) {
  const ChoiceEvaluation found = Alone();
  ASSERT_EQ(found.questions.size(), 4u);
  EXPECT_EQ(found.truncated, 1);
  SelfCommunicator self;
  const auto saved =
      SavedModel::Open(self, runs_.Folder("run"), BuiltInModels());
  ASSERT_TRUE(saved.ok()) << saved.status();
  const std::unique_ptr<Device> device = NewCpuDevice();
  const auto store = (*saved)->Load(self, *device);
  ASSERT_TRUE(store.ok()) << store.status();
  const int64_t positions = (*saved)->recipe().model->max_seq;
  const auto questions = ReadChoices(File());
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  for (size_t q = 0; q < questions->size(); ++q) {
    const ChoiceQuestion& question = (*questions)[q];
    for (size_t i = 0; i < question.options.size(); ++i) {
      const auto choice = EncodeChoice(*bytes, question.question,
                                       " " + question.options[i], positions);
      ASSERT_TRUE(choice.ok());
      double expected = 0;
      const size_t first =
          choice->tokens.size() - static_cast<size_t>(choice->option);
      for (size_t t = first; t < choice->tokens.size(); ++t) {
        Generator generator((*saved)->model(), **store,
                            {.positions = positions});
        generator.Prompt(std::span(choice->tokens).first(t));
        expected += LogProbability(generator.Logits(), choice->tokens[t]);
      }
      const ScoredOption& option = found.questions[q].options[i];
      EXPECT_NEAR(option.log_likelihood, expected, 1e-4)
          << "question " << q << " option " << i;
      EXPECT_EQ(option.tokens, choice->option);
    }
  }
  EXPECT_EQ(found.questions[1].options[1].characters, 2);
  EXPECT_EQ(found.questions[1].options[1].bytes, 4);
  EXPECT_EQ(found.questions[1].options[1].tokens, 5);  // and the space
}

TEST_P(EvaluateChoicesTest, Bf16IsClose) {
  const ChoiceEvaluation exact = Alone(), rounded = Alone(DType::kBF16);
  EXPECT_NE(ToJsonLines(exact), ToJsonLines(rounded));
  for (size_t q = 0; q < exact.questions.size(); ++q) {
    for (size_t i = 0; i < exact.questions[q].options.size(); ++i) {
      const double score = exact.questions[q].options[i].log_likelihood;
      EXPECT_NEAR(rounded.questions[q].options[i].log_likelihood, score,
                  0.03 * std::abs(score));
    }
  }
}

TEST_P(EvaluateChoicesTest, AnOptionLongerThanTheContextIsNamed) {
  const std::string option(100, 'x');
  ASSERT_TRUE(WriteFile(File(), std::string(kQuestions) +
                                    "{\"question\": \"a\", \"options\": "
                                    "[\"b\", \"" +
                                    option + "\"], \"answer\": 0}\n")
                  .ok());
  SelfCommunicator self;
  const absl::Status status = Evaluate(self).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("questions.jsonl:5: options[1] has 101 tokens"));
}

INSTANTIATE_TEST_SUITE_P(Recipes, EvaluateChoicesTest,
                         ::testing::ValuesIn(kTinyRecipes));

// By hand: three questions, of which the scores pick different options.
TEST(ChoiceEvaluationTest, AccuracyAndItsStandardError) {
  ChoiceEvaluation e;
  e.questions.resize(4);
  for (size_t i = 0; i < 4; ++i) {
    e.questions[i].answer = 1;
    e.questions[i].picked = {static_cast<int64_t>(i == 0), 1, 0, i % 2 == 0};
  }
  EXPECT_EQ(e.accuracy(ChoiceScore::kSum), 0.25);
  EXPECT_EQ(e.accuracy(ChoiceScore::kCharacters), 1);
  EXPECT_EQ(e.accuracy(ChoiceScore::kBytes), 0);
  EXPECT_EQ(e.accuracy(ChoiceScore::kTokens), 0.5);
  // The sample's standard deviation over the root of 4.
  EXPECT_NEAR(e.standard_error(ChoiceScore::kSum), 0.25, 1e-15);
  EXPECT_NEAR(e.standard_error(ChoiceScore::kTokens), 0.28867513459481287,
              1e-15);
  EXPECT_EQ(e.standard_error(ChoiceScore::kCharacters), 0);
  const ScoredOption option{
      .log_likelihood = -12, .tokens = 6, .characters = 3, .bytes = 4};
  EXPECT_EQ(option.score(ChoiceScore::kSum), -12);
  EXPECT_EQ(option.score(ChoiceScore::kCharacters), -4);
  EXPECT_EQ(option.score(ChoiceScore::kBytes), -3);
  EXPECT_EQ(option.score(ChoiceScore::kTokens), -2);
}

}  // namespace
}  // namespace delink::testing::evaluate_choices_test
