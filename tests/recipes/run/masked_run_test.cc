// Runs on rows of several documents that are masked: runs of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "framework/comm/self_communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::masked_run_test {
namespace {

constexpr int64_t kSeq = 32;             // recipes/tiny.toml
constexpr double kLossTolerance = 2e-5;  // whole_run_test.cc

class MaskedRunTest : public ::testing::TestWithParam<const char*> {
 protected:
  MaskedRunTest() { runs_.sets = {"data.documents=masked"}; }
  TinyRuns runs_{GetParam(), DocumentLines(), "text.jsonl"};
};
INSTANTIATE_TEST_SUITE_P(Recipes, MaskedRunTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(MaskedRunTest, IsAnotherRunThanPacked) {
  runs_.Go({.sets = {"data.documents=packed"}, .out = "packed"});
  runs_.Go({.out = "masked"});
  EXPECT_GT(LossDifference(runs_.Steps("packed"), runs_.Steps("masked")),
            100 * kLossTolerance);
}

// What eval counts: each token but the first of a document and of a row.
TEST_P(MaskedRunTest, EvaluationMasksAsTheRunDid) {
  runs_.Go({.out = "run", .until_step = 3});
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
}  // namespace delink::testing::masked_run_test
