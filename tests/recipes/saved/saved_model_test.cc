// Checkpoints that are opened for use: where they are, and by how many ranks
// they were written.
#include "recipes/saved/saved_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "recipes/saved/prompts.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::saved_model_test {
namespace {

using ::testing::HasSubstr;

TEST(SavedModelTest, OfARunsFolderItsCheckpointsAreTakenWhateverLiesBeside) {
  const TinyRuns runs;
  runs.Go({.out = "run", .until_step = 5});
  SelfCommunicator self;
  const std::string config = runs.Folder("run") + "/config.json";
  ASSERT_TRUE(WriteFile(config, "{}").ok());
  const auto saved =
      SavedModel::Open(self, runs.Folder("run"), BuiltInModels());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ((*saved)->path(), runs.Checkpoint("run", 5));
  // Without a checkpoint it is a folder of Hugging Face.
  ASSERT_TRUE(RemoveAll(runs.Checkpoint("run", 5)).ok());
  const absl::Status none =
      SavedModel::Open(self, runs.Folder("run"), BuiltInModels()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("delink convert"));
}

// What a checkpoint's model says after a prompt, drawn.
absl::StatusOr<std::string> Said(const std::string& checkpoint) {
  SelfCommunicator self;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(self, checkpoint, BuiltInModels()));
  const std::unique_ptr<Device> device = NewCpuDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> store,
                          saved->Load(self, *device));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          saved->MakeTokenizer());
  DELINK_ASSIGN_OR_RETURN(
      const Continuation continuation,
      ContinuePrompt({.text = "the slab", .options = {.tokens = 40}},
                     *tokenizer, saved->model(), *store,
                     saved->recipe().model->max_seq));
  return continuation.text;
}

class WrittenByRanksTest : public ::testing::TestWithParam<const char*> {
 protected:
  WrittenByRanksTest() : runs_(GetParam()) {
    runs_.sets = {"model.tied=false", "stage.0.share=none", "run.micro_batch=1",
                  "optimizer.lr=0.01"};
  }

  void ExpectSameText(const std::string& a, const std::string& b) {
    const auto one = Said(runs_.Checkpoint(a, 20));
    const auto other = Said(runs_.Checkpoint(b, 20));
    const auto before = Said(runs_.Checkpoint(b, 5));
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(other.ok()) << other.status();
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_GE(one->size(), 20u);
    EXPECT_EQ(*one, *other) << a << " and " << b;
    EXPECT_NE(*before, *other);
  }

  TinyRuns runs_;
};
INSTANTIATE_TEST_SUITE_P(Recipes, WrittenByRanksTest,
                         ::testing::ValuesIn(kTinyRecipes));

TEST_P(WrittenByRanksTest, OverAPipelineTheTextIsThatOfOneRank) {
  runs_.Go({.out = "one"});
  runs_.Go(
      {.ranks = 2, .sets = {"stage.0.parallel.pipeline=2"}, .out = "stages"});
  ExpectSameText("one", "stages");
}

TEST_P(WrittenByRanksTest, WithZeroTheTextIsThatOfTheSameRanksWithout) {
  std::vector<std::string> sets = {"stage.0.parallel.zero=1",
                                   "stage.1.parallel.zero=1"};
  runs_.Go({.ranks = 2, .out = "two"});
  runs_.Go({.ranks = 2, .sets = sets, .out = "cut"});
  ExpectSameText("two", "cut");
  sets.emplace_back("stage.0.parallel.pipeline=2");
  runs_.Go({.ranks = 4, .sets = sets, .out = "both"});
  ExpectSameText("two", "both");
}

}  // namespace
}  // namespace delink::testing::saved_model_test
