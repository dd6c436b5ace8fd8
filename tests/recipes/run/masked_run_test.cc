// Runs on rows of several documents that are masked: a run of its own, the same
// whatever the layout, wherever it is stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "framework/base/rng.h"
#include "framework/comm/self_communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing {
namespace {

constexpr int64_t kSteps = 20, kSeq = 32;  // recipes/tiny.toml
constexpr double kLossTolerance = 2e-5;    // tests/recipes/run/equality_test.cc

// Documents of no word to sixty letters, so that the rows of 32 tokens have
// long and short ones, and empty ones.
std::string MakeLines() {
  const char* const words[] = {"slab ", "of ", "layers ", "a ", "link "};
  std::string lines;
  for (uint64_t line = 0; line < 1500; ++line) {
    const auto random = Philox(KeyFromSeed(3), line, 0);
    lines += "{\"text\": \"";
    uint32_t word = random[0];
    for (uint32_t i = 0; i < random[1] % 12; ++i) {
      lines += words[word % 5];
      word = word * 3 + 1;
    }
    lines += "\"}\n";
  }
  return lines;
}

class MaskedRunTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Go(RunRequest request) {
    request.sets.emplace_back("data.documents=masked");
    const absl::Status status = runs_.Run(request);
    ASSERT_TRUE(status.ok()) << std::string(status.message());
  }
  TinyRuns runs_{GetParam(), MakeLines(), "text.jsonl"};
};
INSTANTIATE_TEST_SUITE_P(Recipes, MaskedRunTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(MaskedRunTest, IsAnotherRunThanPacked) {
  const absl::Status status = runs_.Run({.out = "packed"});
  ASSERT_TRUE(status.ok()) << std::string(status.message());
  Go({.out = "masked"});
  EXPECT_GT(LossDifference(runs_.Steps("packed"), runs_.Steps("masked")),
            100 * kLossTolerance);
}

TEST_P(MaskedRunTest, RanksAndAccumulationAreClose) {
  Go({.out = "one"});
  Go({.ranks = 2, .sets = {"run.micro_batch=4"}, .out = "two"});
  EXPECT_LT(LossDifference(runs_.Steps("one"), runs_.Steps("two")),
            kLossTolerance);
}

TEST_P(MaskedRunTest, RecomputeAndResumeAreBitEqual) {
  Go({.out = "straight"});
  Go({.sets = {"run.recompute=block"}, .out = "stopped", .until_step = 7});
  Go({.sets = {"run.recompute=block"}, .out = "stopped", .resume = true});
  runs_.ExpectSameBits("straight", "stopped", kSteps);
}

TEST_P(MaskedRunTest, IsNotResumedAsPacked) {
  Go({.out = "run", .until_step = 5});
  const absl::Status status = runs_.Run({.out = "run", .resume = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("data.documents"),
            std::string::npos)
      << status;
}

// What eval counts: each token but the first of a document and of a row.
TEST_P(MaskedRunTest, EvaluationMasksAsTheRunDid) {
  Go({.out = "run", .until_step = 3});
  SelfCommunicator comm;
  const std::string folder = runs_.Folder("corpus/validation");
  const auto evaluation =
      Evaluate({.checkpoint = runs_.Checkpoint("run", 3), .data = folder},
               BuiltInModels(), comm);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  const Corpus corpus = *Corpus::Open(folder);
  const int64_t tokens = (corpus.tokens() - 1) / kSeq * kSeq;
  std::vector<int32_t> inputs(static_cast<size_t>(tokens));
  ASSERT_TRUE(corpus.Read(0, tokens, inputs.data()).ok());
  const int64_t ends =
      std::count(inputs.begin(), inputs.end(), corpus.end_of_document());
  EXPECT_GT(ends, 20);
  EXPECT_EQ(evaluation->tokens, tokens - ends);
}

}  // namespace
}  // namespace delink::testing
