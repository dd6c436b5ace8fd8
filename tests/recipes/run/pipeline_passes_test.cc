// What runs over a pipeline do besides their steps: probes, steps that are
// kept, and what is done with their checkpoints. All of it as the same data
// ranks do it without a pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/comm/self_communicator.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/offline_delink.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::pipeline_passes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Sets = std::vector<std::string>;

Sets Join(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Over {
  int pipeline = 2;
  int data = 1;
  Sets sets = {};
};

class PipelinePassesTest : public ::testing::Test {
 protected:
  PipelinePassesTest() { runs_.sets = {"run.validate_every=0"}; }
  // Without a pipeline, and over one.
  void GoBoth(const Sets& sets, const Over& over) {
    runs_.Go(Without(sets, over));
    runs_.Go(With(sets, over));
  }
  static RunRequest Without(const Sets& sets, const Over& over) {
    return {
        .ranks = over.data, .sets = sets, .out = "without", .overwrite = true};
  }
  static RunRequest With(const Sets& sets, const Over& over) {
    const Sets by = {absl::StrCat("stage.0.parallel.pipeline=", over.pipeline)};
    return {.ranks = over.pipeline * over.data,
            .sets = Join(Join(sets, by), over.sets),
            .out = "over",
            .overwrite = true};
  }
  std::string Text(const std::string& of) const {
    const auto text = ReadFile(runs_.Folder(of));
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  TinyRuns runs_;
};

// Of blocks that share over all stages.
TEST_F(PipelinePassesTest, ProbesSayWhatTheySayWithout) {
  const Sets probed = {"run.probe_every=2", "run.checkpoint_every=0"};
  for (const Over& over :
       {Over{.pipeline = 4},
        Over{.data = 2,
        .sets = {"stage.0.parallel.schedule=interleaved",
                 "stage.0.parallel.zero=1"}},
        Over{.pipeline = 3,
        .sets = {"stage.0.parallel.schedule=zero-bubble"}}}) {
    GoBoth(probed, over);
    const std::vector<Probe> a = runs_.Probes("without"),
                             b = runs_.Probes("over");
    ASSERT_EQ(a.size(), 5U);
    ASSERT_EQ(b.size(), 5U);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].step, b[i].step);
      EXPECT_NEAR(a[i].agreement, b[i].agreement, 1e-3);
      EXPECT_NEAR(a[i].rho, b[i].rho, 1e-3);
    }
  }
}

// The step is told as without, but for the rank that has the layer; the data
// ranks keep what they had read, once each.
TEST_F(PipelinePassesTest, AStepThatIsNotFiniteIsKept) {
  const Sets wild = {"optimizer.lr=1000", "optimizer.clip=0",
                     "model.tied=false", "stage.0.share=none"};
  const Over over{.data = 2};
  const auto ended = [&](const RunRequest& request) {
    const absl::Status status = runs_.Run(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  ended(Without(wild, over));
  EXPECT_THAT(ended(With(wild, over)),
              AllOf(HasSubstr("step 2: the loss or its gradient is not finite"),
                    HasSubstr("/over/diagnosis/step-00000002")));
  const std::string folder = "/diagnosis/step-00000002";
  const auto kept = ListDirectory(runs_.Folder("over" + folder));
  ASSERT_TRUE(kept.ok());
  EXPECT_THAT(*kept, UnorderedElementsAre("rank-00000.json", "rank-00001.json",
                                          "recipe.toml", "step.json"));
  for (const char* file : {"/rank-00000.json", "/rank-00001.json"}) {
    EXPECT_EQ(Text("over" + folder + file), Text("without" + folder + file));
  }
  auto a = nlohmann::json::parse(Text("without" + folder + "/step.json"));
  auto b = nlohmann::json::parse(Text("over" + folder + "/step.json"));
  a.erase("why"), b.erase("why");
  EXPECT_EQ(a, b);
}

TEST_F(PipelinePassesTest, AnOutlyingStepIsKept) {
  const Sets watched = {"optimizer.lr=0",        "schedule.steps=28",
                        "stage.0.until.steps=1", "run.outlier=0.5",
                        "stage.0.share=none",    "model.tied=false",
                        "run.checkpoint_every=0"};
  GoBoth(watched, {.pipeline = 3});
  const auto expected = ListDirectory(runs_.Folder("without") + "/diagnosis");
  const auto kept = ListDirectory(runs_.Folder("over") + "/diagnosis");
  ASSERT_TRUE(expected.ok() && kept.ok());
  ASSERT_FALSE(expected->empty());
  EXPECT_EQ(*kept, *expected);
  for (const std::string& step : *kept) {
    const std::string folder = "/diagnosis/" + step;
    for (const char* file : {"/step.json", "/rank-00000.json"}) {
      EXPECT_EQ(Text("over" + folder + file), Text("without" + folder + file));
    }
    EXPECT_FALSE(
        PathExists(runs_.Folder("over") + folder + "/rank-00001.json"));
  }
}

// Where the head is the embedding, and all blocks are one, of several stages.
class PipelineCheckpointTest : public PipelinePassesTest {
 protected:
  PipelineCheckpointTest() {
    runs_.Go(With(
        {}, {.pipeline = 2, .data = 2, .sets = {"stage.0.parallel.zero=1"}}));
  }
};

TEST_F(PipelineCheckpointTest, IsEvaluated) {
  SelfCommunicator comm;
  for (const int64_t step : {10, 20}) {
    const auto evaluation =
        Evaluate({.checkpoint = runs_.Checkpoint("over", step),
                  .data = runs_.Folder("corpus/train"),
                  .batches = 2},
                 BuiltInModels(), comm);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    RunRequest init = With({"data.shuffle=false", "data.batch=16",
                            "stage.0.share=none", "stage.1.share=none"},
                           {.pipeline = 2});
    init.out = "from";
    init.until_step = 1;
    init.init = evaluation->checkpoint;
    runs_.Go(init);
    // Added up in another order.
    EXPECT_NEAR(runs_.Steps("from").at(0).loss, evaluation->loss, 1e-12);
  }
}

// From the checkpoint at the switch, as in the run.
TEST_F(PipelineCheckpointTest, IsDelinkedOffline) {
  const auto report = OfflineDelink(
      {.checkpoint = runs_.Checkpoint("over", 10), .out = runs_.Folder("cut")},
      BuiltInModels());
  ASSERT_TRUE(report.ok()) << report.status();
  RunRequest rest =
      With({}, {.pipeline = 2, .data = 2, .sets = {"stage.0.parallel.zero=1"}});
  rest.out = "rest";
  rest.overwrite = false;
  rest.resume = true;
  rest.resume_from = report->to;
  runs_.Go(rest);
  EXPECT_EQ(FirstDifference(runs_.Load("over", 20), runs_.Load("rest", 20)),
            "");
}

}  // namespace
}  // namespace delink::testing::pipeline_passes_test
