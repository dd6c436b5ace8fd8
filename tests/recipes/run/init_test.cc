// Runs that begin with the weights of another: what comes along, what does not,
// and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "data/corpus/build.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/models/model_list.h"
#include "recipes/saved/evaluate.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::init_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Three pseudo steps, three real ones, of two sequences each.
constexpr int64_t kPseudo = 3, kReal = 6;
const std::vector<std::string> kShort = {
    "data.batch=2", "run.micro_batch=2", "schedule.steps=6",
    "schedule.warmup=0", "stage.0.until.steps=3"};

std::vector<std::string> Join(std::vector<std::string> a,
                              const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Init : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    runs_ = std::make_unique<TinyRuns>();
    ASSERT_TRUE(runs_->Run({.sets = kShort, .out = "old"}).ok());
  }
  static void TearDownTestSuite() { runs_.reset(); }

  // What is said of a run that cannot begin; nothing of it may be there.
  static std::string Refused(const std::vector<std::string>& sets,
                             const std::string& init) {
    const absl::Status status = runs_->Run(
        {.sets = Join(kShort, sets), .out = "refused", .init = init});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
    EXPECT_FALSE(PathExists(runs_->Folder("refused")));
    return std::string(status.message());
  }

  static std::unique_ptr<TinyRuns> runs_;
};
std::unique_ptr<TinyRuns> Init::runs_;

TEST_F(Init, TheFirstLossIsTheCheckpointsBitForBit) {
  for (const int64_t from : {kPseudo, kReal}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("from step ", from, " on ", ranks, " ranks"));
      const std::string checkpoint = runs_->Checkpoint("old", from);
      const std::string out = absl::StrCat("new", from, "on", ranks);
      const absl::Status status = runs_->Run(
          {.ranks = ranks,
           .sets = Join(kShort, {absl::StrCat("data.batch=", 2 * ranks),
                                 "data.shuffle=false", "stage.0.share=none",
                                 "run.seed=9", "optimizer.lr=5e-4"}),
           .out = out,
           .until_step = 1,
           .init = checkpoint});
      ASSERT_TRUE(status.ok()) << std::string(status.message());
      SelfCommunicator comm;
      const auto evaluation = Evaluate({.checkpoint = checkpoint,
                                        .data = runs_->Folder("corpus/train"),
                                        .batches = ranks},
                                       BuiltInModels(), comm);
      ASSERT_TRUE(evaluation.ok());
      const std::vector<Step> steps = runs_->Steps(out);
      ASSERT_EQ(steps.size(), 1u);
      EXPECT_EQ(steps[0].loss, evaluation->loss);
    }
  }
}

// Weights that never moved are those of the seed, so a run begun with them must
// be the run begun without, whatever state the old one had gathered.
TEST_F(Init, NothingButTheWeightsComesAlong) {
  const std::vector<std::string> stop = {"optimizer.lr=1e-35"};
  ASSERT_TRUE(runs_->Run({.sets = Join(kShort, stop), .out = "still"}).ok());
  ASSERT_TRUE(runs_->Run({.sets = kShort, .out = "plain"}).ok());
  ASSERT_TRUE(runs_
                  ->Run({.sets = Join(kShort, {"optimizer.lr=1e-3"}),
                         .out = "begun",
                         .init = runs_->Checkpoint("still", kPseudo)})
                  .ok());
  EXPECT_EQ(LossDifference(runs_->Steps("plain"), runs_->Steps("begun")), 0);
  EXPECT_EQ(
      FirstDifference(runs_->Load("plain", kReal), runs_->Load("begun", kReal)),
      "");
  EXPECT_NE(
      FirstDifference(runs_->Load("plain", kReal), runs_->Load("still", kReal)),
      "");
}

TEST_F(Init, ResumeWinsWhereThereIsSomethingToResume) {
  RunRequest request{
      .sets = Join(kShort, {"stage.0.share=groups:2"}),
      .out = "again",
      .until_step = 4,
      .resume = true,
      .init = runs_->Folder("old") + "/checkpoints/step-00000003"};
  ASSERT_TRUE(runs_->Run(request).ok());
  // The same words, after the old run is gone.
  request.until_step = kReal;
  request.init = runs_->Folder("nowhere");
  ASSERT_TRUE(runs_->Run(request).ok());
  request.resume = false;
  request.out = "atonce";
  EXPECT_TRUE(absl::IsNotFound(runs_->Run(request)));
  request.init = runs_->Checkpoint("old", kPseudo);
  ASSERT_TRUE(runs_->Run(request).ok());
  EXPECT_EQ(FirstDifference(runs_->Load("again", kReal),
                            runs_->Load("atonce", kReal)),
            "");
}

TEST_F(Init, AModelThatDiffersIsRefusedWithItsFirstTensor) {
  const std::string real = runs_->Checkpoint("old", kReal);
  EXPECT_THAT(Refused({"model.dim=64"}, real),
              AllOf(HasSubstr("embed/token/weight is [257, 32]"),
                    HasSubstr("the model's is [257, 64]")));
  EXPECT_THAT(Refused({"model.ffn=96"}, real),
              AllOf(HasSubstr("blocks/0/mlp/up/weight is [128, 32]"),
                    HasSubstr("[96, 32]")));
  EXPECT_THAT(Refused({"model.layers=5", "stage.0.share=none"}, real),
              HasSubstr("has no blocks/4/"));
  EXPECT_THAT(Refused({"model.layers=3", "stage.0.share=none"}, real),
              AllOf(HasSubstr("has blocks/3/"), HasSubstr("has none")));
  EXPECT_THAT(Refused({"model.vocab=300"}, real), HasSubstr("[300, 32]"));
}

TEST_F(Init, LinksCanBeCutNotMade) {
  const std::string real = runs_->Checkpoint("old", kReal);
  EXPECT_THAT(Refused({"stage.0.share=all"}, real),
              AllOf(HasSubstr("blocks 0 and 1"), HasSubstr("norm")));
  EXPECT_THAT(Refused({"stage.0.share={ mlp = \"groups:2\" }"}, real),
              AllOf(HasSubstr("blocks 0 and 1"), HasSubstr("mlp")));
}

TEST_F(Init, ATiedHeadMayBeLetGoButNotTied) {
  ASSERT_TRUE(runs_
                  ->Run({.sets = Join(kShort, {"model.tied=false"}),
                         .out = "untied",
                         .init = runs_->Checkpoint("old", kPseudo)})
                  .ok());
  EXPECT_THAT(Refused({}, runs_->Checkpoint("untied", kPseudo)),
              HasSubstr("the model ties them"));
}

TEST_F(Init, TheTokenizerMustBeTheCheckpoints) {
  const std::string other = runs_->Folder("other");
  ASSERT_TRUE(BuildCorpus({.inputs = {runs_->Folder("text.txt")},
                           .out = other,
                           .train_vocab = 280,
                           .validation = 0.1})
                  .ok());
  EXPECT_THAT(Refused({absl::StrCat("data.train=\"", other, "/train\"")},
                      runs_->Folder("old")),
              AllOf(HasSubstr(other + "/train"), HasSubstr("another tokenizer"),
                    HasSubstr("--tokenizer")));
}

TEST_F(Init, WhatOverwriteWouldRemoveIsKept) {
  const absl::Status status = runs_->Run({.sets = kShort,
                                          .out = "old",
                                          .overwrite = true,
                                          .init = runs_->Folder("old")});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--overwrite"));
  EXPECT_TRUE(PathExists(runs_->Checkpoint("old", kReal)));
}

}  // namespace
}  // namespace delink::testing::init_test
