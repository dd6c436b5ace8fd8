// What is done with saved models, of those that visit some blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "layers/modules/embedding.h"
#include "layers/modules/linear.h"
#include "layers/modules/lm_head.h"
#include "recipes/saved/evaluate.h"
#include "recipes/saved/forward_pass.h"
#include "recipes/saved/generate.h"
#include "recipes/saved/inspect.h"
#include "recipes/saved/offline_delink.h"
#include "recipes/saved/saved_model.h"
#include "tests/recipes/run/some_blocks.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::visited_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A stage that visits blocks 0, 2 and 4 of five, and a model of those alone.
class VisitedPassTest : public ::testing::TestWithParam<const char*> {
 protected:
  VisitedPassTest() {
    RigOptions options = OfKind(GetParam(), {.layers = 5,
                                             .visited = {0, 2, 4},
                                             .global_batch = 2,
                                             .init_std = 0.3});
    many_ = std::make_unique<StepRig>(comm_, "none", options);
    options.only_visited = true;
    few_ = std::make_unique<StepRig>(comm_, "none", options);
  }

  SelfCommunicator comm_;
  std::unique_ptr<StepRig> many_, few_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, VisitedPassTest,
                         ::testing::ValuesIn(kModelKinds));

TEST_P(VisitedPassTest, LossesAreThoseOfAModelWithoutTheOthers) {
  const HostBatch batch = many_->Batch(1);
  const ForwardPass::Options options{
      .batch = {.micro_batch = 2, .seq = StepRig::kSeq}, .by_sequence = true};
  const auto losses = [&](StepRig& rig) {
    const auto pass = ForwardPass::Create(rig.model(), rig.store(), options);
    DELINK_CHECK(pass.ok()) << pass.status();
    double sum = 0;
    for (const LossRecord& loss : (*pass)->Losses(batch)) sum += loss.loss_sum;
    return sum;
  };
  const double many = losses(*many_);
  EXPECT_EQ(many, losses(*few_));
  const LossRecord evaluated = *many_->executor().Evaluate(batch);
  EXPECT_NEAR(many, evaluated.loss_sum, 1e-5 * evaluated.loss_sum);
}

TEST_P(VisitedPassTest, GeneratedTokensToo) {
  const auto tokens = [](StepRig& rig) {
    Generator generator(rig.model(), rig.store(),
                        {.seed = 3, .positions = StepRig::kSeq});
    generator.Prompt(std::vector<int32_t>{5, 17, 2});
    std::vector<double> all;
    for (int i = 0; i < 12; ++i) {
      const std::vector<double>& logits = generator.Logits();
      all.insert(all.end(), logits.begin(), logits.end());
      all.push_back(generator.Next());
    }
    return all;
  };
  EXPECT_EQ(tokens(*many_), tokens(*few_));
}

// Reads all of its input for each value of its output.
class MatrixBlock final : public Module {
 public:
  struct Config {
    int64_t dim = 0;
  };
  MatrixBlock(const Scope& s, const Config& c)
      : linear_(s / "linear", {.in = c.dim, .out = c.dim, .stddev = 0.3}) {}
  Var operator()(Var x) override { return linear_(x); }

 private:
  Linear linear_;
};

struct Matrices {
  explicit Matrices(bool only_visited) : whole(Scope(registry)) {
    // So wide that no product reads its input in one go.
    constexpr int64_t kDim = 1024;
    const std::vector<int> visited = {0, 2, 4};
    whole.Prologue<Embedding>(
        "embed", {.vocab = StepRig::kVocab, .dim = kDim, .stddev = 1});
    for (int i = 0; i < 5; ++i) whole.Block<MatrixBlock>({.dim = kDim});
    whole.Epilogue<LmHead>({.dim = kDim, .vocab = StepRig::kVocab});
    SharingMap map{.visited = visited};
    if (only_visited) {
      some = KeepBlocks(visited, whole, registry);
      map.visited.clear();
    }
    store = *ParamStore::Create(
        *device, Layout::Create(registry, model().blocks(), map, {}), 0,
        {.gradients = false, .states = {}});
    store->InitWeights(1);
  }
  Sequential& model() { return some != nullptr ? *some : whole; }

  std::unique_ptr<Device> device = NewCpuDevice();
  ParamRegistry registry;
  Sequential whole;
  std::unique_ptr<Sequential> some;
  std::unique_ptr<ParamStore> store;
};

// Blocks that come one after the other, of which no two have neighbouring
// numbers.
TEST(VisitedForwardTest, NoLayerWritesWhatItReads) {
  HostBatch batch{.samples = {0, 1}};
  for (int i = 0; i < 2 * StepRig::kSeq; ++i) {
    batch.inputs.push_back(i * 7 % StepRig::kVocab);
    batch.targets.push_back(i * 5 % StepRig::kVocab);
  }
  const auto loss = [&](Matrices matrices) {
    const auto pass = ForwardPass::Create(
        matrices.model(), *matrices.store,
        {.batch = {.micro_batch = 2, .seq = StepRig::kSeq}});
    DELINK_CHECK(pass.ok()) << pass.status();
    return (*pass)->Loss(batch).loss_sum;
  };
  EXPECT_EQ(loss(Matrices(false)), loss(Matrices(true)));
}

// The checkpoint of a tiny run at its switch, and its blocks 0, 2 and 3 alone.
class VisitedSavedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runs_.Go({.out = "run", .until_step = 10});
    const absl::Status status = WriteSome(runs_.Checkpoint("run", 10));
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::Status WriteSome(const std::string& of) {
    DELINK_ASSIGN_OR_RETURN(const auto saved,
                            SavedModel::Open(comm_, of, BuiltInModels()));
    SharingMap map = saved->sharing();
    map.visited = {0, 2, 3};
    for (auto& [part, leaders] : map.leaders) leaders = {0, -1, 0, 0};
    const auto device = NewCpuDevice();
    DELINK_ASSIGN_OR_RETURN(
        const auto store,
        ParamStore::Create(
            *device,
            Layout::Create(saved->registry(), saved->blocks(), map, {}), 0,
            {.gradients = false}));
    DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm_, saved->path(), *store));
    DELINK_ASSIGN_OR_RETURN(const CheckpointFiles files, saved->Files());
    DELINK_ASSIGN_OR_RETURN(
        some_, WriteCheckpoint(comm_, runs_.Folder("some"), saved->header(),
                               *store, files, 0));
    return absl::OkStatus();
  }

  double Loss(const std::string& checkpoint) {
    const auto evaluated = Evaluate({.checkpoint = checkpoint,
                                     .data = runs_.Folder("corpus/train"),
                                     .batches = 2},
                                    BuiltInModels(), comm_);
    DELINK_CHECK(evaluated.ok()) << evaluated.status();
    return evaluated->loss;
  }

  SelfCommunicator comm_;
  TinyRuns runs_;
  std::string some_;
};

TEST_F(VisitedSavedTest, AreInspectedAndCut) {
  // Of the last stage, behind which nothing grows.
  runs_.Go({.sets = {"stage.1.share=all"}, .out = "last"});
  const absl::Status status = WriteSome(runs_.Checkpoint("last", 20));
  ASSERT_TRUE(status.ok()) << status;
  const auto seen = InspectCheckpoint(some_, BuiltInModels());
  ASSERT_TRUE(seen.ok()) << seen.status();
  const auto all =
      InspectCheckpoint(runs_.Checkpoint("last", 20), BuiltInModels());
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(seen->unique_parameters, all->unique_parameters);
  EXPECT_LT(seen->virtual_parameters, all->virtual_parameters);
  EXPECT_THAT(ToText(*all), HasSubstr("\ndepth       all 4 block(s)\n"));
  EXPECT_EQ(seen->blocks, 4);
  EXPECT_THAT(seen->visited, ElementsAre(0, 2, 3));
  EXPECT_THAT(ToJson(*seen),
              HasSubstr("\"blocks\":4,\"depth\":3,\"visited\":[0,2,3]"));
  EXPECT_THAT(
      ToText(*seen),
      AllOf(HasSubstr("\ndepth       3 of 4 blocks visited: 0, 2 and 3\n"),
            HasSubstr("mlp: blocks 0,2,3 share"), HasSubstr("blocks/3/mlp"),
            Not(HasSubstr("blocks/1/"))));
  const auto cut = OfflineDelink(
      {.checkpoint = some_, .out = runs_.Folder("cut")}, BuiltInModels());
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->stage_after, "real");
  EXPECT_EQ(cut->after.unique_parameters, cut->after.virtual_parameters);
  EXPECT_EQ(cut->before.virtual_parameters, cut->after.virtual_parameters);
  const auto after = InspectCheckpoint(cut->to, BuiltInModels());
  ASSERT_TRUE(after.ok()) << after.status();
  for (const PartSharing& part : after->sharing) {
    EXPECT_THAT(part.sets,
                ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(3)))
        << part.part;
  }
  const double loss = Loss(some_);
  EXPECT_EQ(Loss(cut->to), loss);
  EXPECT_NE(Loss(runs_.Checkpoint("last", 20)), loss);
}

// Also where only the tensors tell.
TEST(InspectTest, SaysWhichBlocksAreVisited) {
  const TinyRuns runs;
  runs.Go(
      {.sets = {"model.layers=8", "stage.0.depth=2", "stage.0.visit=even",
                "stage.0.share=none", "schedule.steps=3", "schedule.warmup=1",
                "stage.0.until.steps=2", "run.checkpoint_every=0"},
       .out = "run"});
  const auto depth = [&](int64_t step, const ModelList& models) {
    const auto seen = InspectCheckpoint(runs.Checkpoint("run", step), models);
    DELINK_CHECK(seen.ok()) << seen.status();
    return DepthInWords(*seen);
  };
  EXPECT_EQ(depth(2, BuiltInModels()), "2 of 8 blocks visited: 0 and 4");
  EXPECT_EQ(depth(3, BuiltInModels()), "all 8 block(s)");
  EXPECT_EQ(depth(2, ModelList()), "2 block(s): 0 and 4");
  EXPECT_EQ(depth(3, ModelList()), "8 block(s): 0-7");
}

// As the recipe's next stage says, or by hand.
TEST_F(VisitedSavedTest, Grow) {
  const auto grown = OfflineDelink(
      {.checkpoint = some_, .out = runs_.Folder("grown")}, BuiltInModels());
  ASSERT_TRUE(grown.ok()) << grown.status();
  EXPECT_EQ(grown->depth_before, 3);
  EXPECT_EQ(grown->depth_after, 4);
  EXPECT_EQ(grown->stage_after, "real");
  EXPECT_THAT(ToString(*grown),
              HasSubstr("; from 3 to 4 blocks, new ones by copy; weights"));
  const auto zero = OfflineDelink({.checkpoint = some_,
                                   .out = runs_.Folder("zero"),
                                   .share = *ParseShareSpec("none"),
                                   .depth = 4,
                                   .grow = GrowPolicy::kZero},
                                  BuiltInModels());
  ASSERT_TRUE(zero.ok()) << zero.status();
  EXPECT_EQ(Loss(zero->to), Loss(some_));
  EXPECT_NE(Loss(grown->to), Loss(some_));
  const auto refused = [&](OfflineDelinkOptions options) {
    options.checkpoint = some_;
    options.out = runs_.Folder("refused");
    return std::string(
        OfflineDelink(options, BuiltInModels()).status().message());
  };
  EXPECT_THAT(refused({.depth = 5}),
              HasSubstr("the model has 4 blocks, fewer than --depth 5"));
  EXPECT_THAT(refused({.depth = 2}),
              HasSubstr("blocks 0,2,3 are visited before the switch, but after "
                        "it only 0,1: a switch cannot drop blocks"));
}

// From the checkpoint at the switch, as in the run.
TEST(GrownRunTest, OfflineIsBitEqual) {
  const TinyRuns runs;
  for (const std::string grow : {"copy", "cycle", "random", "zero"}) {
    for (const std::string state : {"reset", "scale"}) {
      const std::string out = grow + "-" + state;
      const std::vector<std::string> sets = {
          "stage.0.depth=2", "stage.1.grow=" + grow, "stage.1.state=" + state};
      runs.Go({.sets = sets, .out = out});
      const auto grown = OfflineDelink({.checkpoint = runs.Checkpoint(out, 10),
                                        .out = runs.Folder(out + "-grown")},
                                       BuiltInModels());
      ASSERT_TRUE(grown.ok()) << grown.status();
      EXPECT_EQ(grown->depth_before, 2);
      EXPECT_EQ(grown->depth_after, 4);
      runs.Go({.sets = sets,
               .out = out + "-on",
               .resume = true,
               .resume_from = grown->to});
      EXPECT_EQ(FirstDifference(runs.Load(out, 20), runs.Load(out + "-on", 20)),
                "")
          << out;
    }
  }
}

}  // namespace
}  // namespace delink::testing::visited_test
