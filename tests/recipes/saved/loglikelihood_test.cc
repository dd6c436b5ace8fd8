// Log-likelihoods of texts beside another way to find them: token by token,
// with a cache (recipes/saved/generate.h).
#include "recipes/saved/loglikelihood.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/corpus/build.h"
#include "data/tokenizer/huggingface_files.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/saved_model.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/recipes/saved/log_probability.h"

namespace delink::testing::loglikelihood_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of a model with 32 positions: the fourth loses its beginning, the last takes
// three windows.
constexpr char kPairs[] =
    "{\"context\": \"the slab of a\", \"continuation\": \" layer\"}\n"
    "{\"context\": \"moves. \", \"continuation\": \"\xc3\xa9\", \"id\": 3}\n"
    "\n"
    "{\"context\": \"\", \"continuation\": \"the slab\"}\n"
    "{\"context\": \"its weights and its weights and its\", "
    "\"continuation\": \" weights\"}\n"
    "{\"text\": \"the slab\"}\n"
    "{\"text\": \"\"}\n"
    "{\"text\": \"the slab of a layer holds its weights and moves. the slab "
    "of a layer holds its\"}\n";

class LoglikelihoodTest : public ::testing::TestWithParam<const char*> {
 protected:
  LoglikelihoodTest() : runs_(GetParam()) {
    EXPECT_TRUE(runs_.Run({.sets = {"optimizer.lr=0.01"}, .out = "run"}).ok());
    EXPECT_TRUE(WriteFile(File(), kPairs).ok());
  }
  std::string File() const { return runs_.Folder("pairs.jsonl"); }

  absl::StatusOr<LoglikelihoodEvaluation> Evaluate(
      Communicator& comm, DType dtype = DType::kF32) const {
    return EvaluateLoglikelihood(
        {.checkpoint = runs_.Folder("run"), .pairs = File(), .dtype = dtype},
        BuiltInModels(), comm);
  }
  LoglikelihoodEvaluation Alone(DType dtype = DType::kF32) const {
    SelfCommunicator self;
    absl::StatusOr<LoglikelihoodEvaluation> found = Evaluate(self, dtype);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *std::move(found) : LoglikelihoodEvaluation();
  }
  TinyRuns runs_;
};

TEST_P(LoglikelihoodTest, TokensAreThoseOfTheGenerator) {
  const LoglikelihoodEvaluation found = Alone();
  ASSERT_EQ(found.pairs.size(), 7u);
  SelfCommunicator self;
  const auto saved =
      SavedModel::Open(self, runs_.Folder("run"), BuiltInModels());
  ASSERT_TRUE(saved.ok()) << saved.status();
  const std::unique_ptr<Device> device = NewCpuDevice();
  const auto store = (*saved)->Load(self, *device);
  ASSERT_TRUE(store.ok()) << store.status();
  const int64_t positions = (*saved)->recipe().model->max_seq;
  const auto bytes = MakeByteTokenizer();
  const auto pairs = ReadTextPairs(File());
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  int greedy = 0;
  for (size_t p = 0; p < pairs->size(); ++p) {
    const TextPair& pair = (*pairs)[p];
    SCOPED_TRACE(pair.line);
    EXPECT_EQ(found.pairs[p].line, pair.line);
    std::vector<ChoiceTokens> sequences;
    if (pair.whole) {
      sequences =
          RollingWindows(*bytes->Encode(pair.continuation), 256, positions);
    } else {
      sequences = {
          *EncodeChoice(*bytes, pair.context, pair.continuation, positions)};
    }
    size_t next = 0;
    for (const ChoiceTokens& sequence : sequences) {
      const size_t first =
          sequence.tokens.size() - static_cast<size_t>(sequence.option);
      for (size_t t = first; t < sequence.tokens.size(); ++t) {
        Generator generator((*saved)->model(), **store,
                            {.positions = positions});
        generator.Prompt(std::span(sequence.tokens).first(t));
        const std::vector<double>& logits = generator.Logits();
        ASSERT_LT(next, found.pairs[p].tokens.size());
        const ScoredToken& token = found.pairs[p].tokens[next++];
        EXPECT_EQ(token.id, sequence.tokens[t]);
        EXPECT_NEAR(token.log_likelihood,
                    LogProbability(logits, sequence.tokens[t]), 1e-5);
        const bool likeliest =
            std::max_element(logits.begin(), logits.end()) - logits.begin() ==
            sequence.tokens[t];
        EXPECT_EQ(token.greedy, likeliest);
        greedy += likeliest;
      }
    }
    EXPECT_EQ(next, found.pairs[p].tokens.size());
  }
  EXPECT_GT(greedy, 0);
  EXPECT_LT(greedy, found.tokens());
  EXPECT_EQ(found.pairs[0].tokens.size(), 6u);
  EXPECT_EQ(found.pairs[1].tokens.size(), 3u);  // the space too
  EXPECT_TRUE(found.pairs[3].truncated);
  EXPECT_FALSE(found.pairs[0].truncated);
  EXPECT_NEAR(found.pairs[2].log_likelihood(), found.pairs[4].log_likelihood(),
              1e-9);
  EXPECT_EQ(found.pairs[5].tokens.size(), 0u);
  EXPECT_TRUE(found.pairs[5].greedy());
  EXPECT_EQ(found.pairs[6].tokens.size(), 78u);
}

TEST_P(LoglikelihoodTest, Bf16IsClose) {
  const LoglikelihoodEvaluation exact = Alone(), rounded = Alone(DType::kBF16);
  EXPECT_NE(ToJsonLines(exact), ToJsonLines(rounded));
  for (size_t p = 0; p < exact.pairs.size(); ++p) {
    const double score = exact.pairs[p].log_likelihood();
    EXPECT_NEAR(rounded.pairs[p].log_likelihood(), score,
                0.03 * std::abs(score));
  }
}

TEST_P(LoglikelihoodTest, WrongLinesAreNamed) {
  SelfCommunicator self;
  ASSERT_TRUE(WriteFile(File(),
                        "{\"context\": \"a\"}\n[]\n"
                        "{\"text\": \"a\", \"context\": \"b\"}\n"
                        "{\"text\": 3}\n")
                  .ok());
  absl::Status status = Evaluate(self).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("pairs.jsonl:1: the line has no `continuation`"),
                    HasSubstr("pairs.jsonl:2: the line is no JSON object"),
                    HasSubstr("pairs.jsonl:3: the line has a `text` and"),
                    HasSubstr("pairs.jsonl:4: the line has no `text`")));
  ASSERT_TRUE(WriteFile(File(), "\n").ok());
  EXPECT_THAT(std::string(Evaluate(self).status().message()),
              HasSubstr("has no pairs"));
  ASSERT_TRUE(WriteFile(File(), "{\"context\": \"a\", \"continuation\": \"" +
                                    std::string(99, 'x') + "\"}\n")
                  .ok());
  status = Evaluate(self).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("pairs.jsonl:1: the continuation has 99 tokens"));
}

// Of a tokenizer whose folder asks for it: what is scored comes after it.
TEST(LoglikelihoodOfAFolderTest, ABeginOfSequenceIsInFrontOnceAndNotScored) {
  TinyRuns runs;
  auto json = nlohmann::json::parse(
      ForHuggingFace(*MakeByteTokenizer()).files.at("tokenizer.json"));
  json["added_tokens"].push_back(
      {{"id", 257}, {"content", "<s>"}, {"special", true}});
  const std::string folder = runs.Folder("tokenizer");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFile(folder + "/tokenizer.json", json.dump()).ok());
  ASSERT_TRUE(WriteFile(folder + "/tokenizer_config.json",
                        "{\"bos_token\": \"<s>\", \"add_bos_token\": true}")
                  .ok());
  ASSERT_TRUE(BuildCorpus({.inputs = {runs.Folder("text.txt")},
                           .out = runs.Folder("begun"),
                           .tokenizer_file = folder,
                           .validation = 0.1})
                  .ok());
  runs.data = {"data.train=\"" + runs.Folder("begun/train") + "\""};
  runs.Go({.out = "run"});
  const std::string pairs = runs.Folder("pairs.jsonl");
  ASSERT_TRUE(WriteFile(pairs,
                        "{\"text\": \"the slab\"}\n"
                        "{\"context\": \"\", \"continuation\": \"the slab\"}\n"
                        "{\"context\": \"the\", \"continuation\": \" slab\"}\n")
                  .ok());
  SelfCommunicator self;
  const auto found =
      EvaluateLoglikelihood({.checkpoint = runs.Folder("run"), .pairs = pairs},
                            BuiltInModels(), self);
  ASSERT_TRUE(found.ok()) << found.status();
  const std::vector<ScoredToken>& whole = found->pairs[0].tokens;
  ASSERT_EQ(whole.size(), 8u);
  ASSERT_EQ(found->pairs[1].tokens.size(), 8u);
  ASSERT_EQ(found->pairs[2].tokens.size(), 5u);
  const std::string text = "the slab";
  for (size_t t = 0; t < text.size(); ++t) {
    const double score = whole[t].log_likelihood;
    EXPECT_EQ(whole[t].id, text[t]);
    EXPECT_NEAR(found->pairs[1].tokens[t].log_likelihood, score, 1e-6);
    if (t < 3) continue;
    EXPECT_NEAR(found->pairs[2].tokens[t - 3].log_likelihood, score, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, LoglikelihoodTest,
                         ::testing::ValuesIn(kTinyRecipes));

// As the harness's own example has it (its LM.loglikelihood_rolling).
TEST(RollingWindowsTest, EveryTokenOnceWithAllTheContextThatFits) {
  const auto windows = RollingWindows({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 99, 4);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_THAT(windows[0].tokens, ElementsAre(99, 0, 1, 2, 3));
  EXPECT_EQ(windows[0].option, 4);
  EXPECT_THAT(windows[1].tokens, ElementsAre(3, 4, 5, 6, 7));
  EXPECT_EQ(windows[1].option, 4);
  EXPECT_THAT(windows[2].tokens, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_EQ(windows[2].option, 2);
  EXPECT_TRUE(RollingWindows({}, 99, 4).empty());
  EXPECT_THAT(RollingWindows({5}, 99, 4)[0].tokens, ElementsAre(99, 5));
}

}  // namespace
}  // namespace delink::testing::loglikelihood_test
