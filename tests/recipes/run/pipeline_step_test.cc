// Pipelines whose ranks are threads: the steps are those of the same data ranks
// without a pipeline, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/random_layouts.h"
#include "tests/recipes/run/hybrid.h"
#include "tests/recipes/run/pipeline_steps.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::pipeline_step_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kLr = 1e-3;

// Each shape three times, with everything else drawn.
std::vector<PipelineCase> Table() {
  const PipelineCase shapes[] = {
      {.pipeline = 2},
      {.pipeline = 2, .turns = 2},
      {.pipeline = 3},
      {.pipeline = 4},
      {.pipeline = 2, .turns = 4},
      {.pipeline = 2, .data = 2},
      {.pipeline = 2, .turns = 2, .data = 2},
      {.pipeline = 2, .data = 3},
      {.pipeline = 4, .data = 2},
      {.pipeline = 4, .turns = 2, .data = 2},
  };
  std::vector<PipelineCase> table;
  Dice dice(19);
  for (int turn = 0; turn < 3; ++turn) {
    for (PipelineCase of : shapes) {
      // As deep as the pipeline needs, or deeper: pieces are uneven.
      of.options.layers =
          std::max(4, of.pipeline * of.turns - 2) + dice.Below(3);
      of.micro_batches =
          of.turns > 1 ? of.pipeline * dice.Between(1, 2) : dice.Between(1, 6);
      const StepNumbers& numbers = kNumbers[dice.Below(3)];
      of.kind = kModelKinds[dice.Below(2)];
      of.delays = dice.Below(3) == 0;
      of.options.dtype = numbers.dtype;
      of.options.bf16_gradients = numbers.bf16_gradients;
      of.options.muon = dice.Below(3) == 0;
      of.options.zero = dice.Below(4);
      of.options.reduces_micro_batches = of.options.zero >= 2 && dice.Maybe();
      of.options.recompute = dice.Maybe();
      of.options.remake = dice.Maybe();
      of.options.lane_threads = dice.Maybe();
      of.options.masked = dice.Below(3) == 0;
      of.options.dropout = dice.Maybe() ? 0.1 : 0;
      of.options.clip = dice.Maybe() ? 0.5 : 0;
      of.options.halves = of.turns == 1 && dice.Maybe();
      table.push_back(of);
    }
  }
  // A user's own model, whose backwards are in two halves.
  table.push_back({.pipeline = 2,
                   .options = {.tied = false,
                               .dropout = 0.1,
                               .halves = true,
                               .build = BuildHybrid}});
  return table;
}

class PipelineStepTest : public ::testing::TestWithParam<PipelineCase> {};
INSTANTIATE_TEST_SUITE_P(Rows, PipelineStepTest, ::testing::ValuesIn(Table()));

TEST_P(PipelineStepTest, IsThatWithoutAPipeline) {
  OnRanks(GetParam().ranks(),
          [](Communicator& world) { ExpectStepsAsWithout(world, GetParam()); });
}

// A tied head on another stage than the embedding; blocks of several stages
// that share all or a part.
TEST(PipelineStep, SlabsOfSeveralStages) {
  const PipelineCase cases[] = {
      {.pipeline = 2, .options = {.zero = 1}},
      {.pipeline = 3, .data = 2, .options = {.lane_threads = true}},
      {.pipeline = 2, .data = 2, .kind = "llama", .options = {.zero = 1}},
      {.pipeline = 2, .turns = 2, .data = 2, .share = "cycle:2"},
      {.pipeline = 4, .share = "all", .options = {.tied = false}},
      {.pipeline = 4, .share = "groups:2", .options = {.halves = true}},
      {.pipeline = 3,
       .data = 2,
       .share = "attention=all",
       .options = {.lane_threads = true,
                   .zero = 2,
                   .reduces_micro_batches = true,
                   .muon = true}},
  };
  for (const PipelineCase& of : cases) {
    SCOPED_TRACE(::testing::PrintToString(of));
    OnRanks(of.ranks(), [&](Communicator& world) {
      ExpectStepsNearThoseWithout(world, of);
    });
  }
}

RigOptions Of(const PipelineCase& of) {
  RigOptions options = of.options;
  options.pipeline = of.pipeline;
  options.turns = of.turns;
  options.micro_batch = 1;
  options.global_batch = of.data * of.micro_batches;
  return options;
}

// Behind the layer where it began all outputs are not finite, on whichever
// stage.
TEST(PipelineDiagnosis, NamesTheStageWhereItBegan) {
  struct Row {
    PipelineCase of;
    int rank = 0;  // that has blocks/1
  };
  for (const Row& row :
       {Row{{.pipeline = 2, .data = 2}, 0}, Row{{.pipeline = 2, .turns = 2}, 1},
        Row{{.pipeline = 3, .data = 2}, 2}}) {
    OnRanks(row.of.ranks(), [&](Communicator& world) {
      StepRig rig(world, "none", Of(row.of));
      for (const LogicalTensor& t : rig.store().layout().tensors()) {
        if (t.name != "blocks/1/mlp/down/weight") continue;
        const float infinity = std::numeric_limits<float>::infinity();
        for (const int slab : rig.store().LocalSlabsOf(t.slab)) {
          SetParameters(rig.store(), *rig.device().NewStream(), slab, t.offset,
                        1, &infinity);
        }
      }
      const HostBatch batch = rig.Batch(1);
      EXPECT_TRUE(rig.executor().TrainStep(batch, 1, kLr)->skipped);
      EXPECT_EQ(*rig.executor().Diagnose(batch, 1),
                absl::StrCat("rank ", row.rank,
                             ": the output of blocks/1 is not finite "
                             "(micro-batch 0, sequence 0, token 0)"));
    });
  }
}

// How far gradients agree of what blocks share, of one stage and of several.
TEST(PipelineProbe, FindsWhatIsFoundWithout) {
  const PipelineCase cases[] = {
      {.pipeline = 2, .data = 2, .share = "groups:2"},
      {.pipeline = 2, .share = "all"},
      {.pipeline = 2,
       .data = 2,
       .share = "all",
       .options = {.lane_threads = true, .zero = 2}},
      {.pipeline = 4, .share = "all", .options = {.tied = false}},
      {.pipeline = 4,
       .data = 2,
       .kind = "llama",
       .share = "groups:2",
       .options = {.halves = true}},
      {.pipeline = 2,
       .turns = 2,
       .data = 2,
       .share = "all",
       .options = {.recompute = true, .lane_threads = true},
       .delays = true},
      {.pipeline = 3,
       .share = "attention=all,mlp=groups:2",
       .options = {.lane_threads = true, .zero = 1, .muon = true},
       .delays = true},
      {.pipeline = 3, .data = 2, .share = "cycle:2"},
      {.pipeline = 2,
       .data = 2,
       .share = "all",
       .options = {.dtype = DType::kBF16,
                   .bf16_gradients = true,
                   .tied = false}},
  };
  for (PipelineCase of : cases) {
    SCOPED_TRACE(::testing::PrintToString(of));
    OnRanks(of.ranks(),
            [&](Communicator& world) { ExpectProbesAsWithout(world, of); });
  }
}

// Of all stages as much as is computed in all, and what goes from one to the
// other.
TEST(PipelineTrace, CountsVisitsAndWhatIsSent) {
  const PipelineCase of{.pipeline = 3, .micro_batches = 3};
  OnRanks(of.ranks(), [&](Communicator& world) {
    Trace trace(1, 1);
    RigOptions options = Of(of);
    options.recompute = true;
    options.trace = &trace;
    StepRig rig(world, "none", options);
    const HostBatch batch = rig.Batch(1);
    const auto step = rig.executor().TrainStep(batch, 1, kLr);
    ASSERT_TRUE(step.ok()) << step.status();
    // The first stage waits for gradients at the least.
    EXPECT_GT(*AllReduceScalar(world, step->waited.all, ReduceOp::kSum), 0);
    EXPECT_TRUE(rig.executor().Drain().ok());
    const std::vector<Trace::Entry>& entries = trace.programs().at(0);
    EXPECT_EQ(trace.spans().size(), entries.size());
    double flops = 0, sent = 0;
    for (const Trace::Entry& entry : entries) {
      flops +=
          entry.forward_flops + entry.backward_flops + entry.recompute_flops;
      const bool moves = entry.at.op == Op::kSend || entry.at.op == Op::kRecv;
      sent += moves ? static_cast<double>(entry.bytes) : 0;
    }
    EXPECT_DOUBLE_EQ(*AllReduceScalar(world, flops, ReduceOp::kSum),
                     rig.executor().flops_per_micro_batch() *
                         static_cast<double>(of.micro_batches));
    // Two ways over two borders, for each micro-batch, sent and received.
    constexpr double kBoundary = StepRig::kSeq * StepRig::kDim * 4;
    EXPECT_EQ(*AllReduceScalar(world, sent, ReduceOp::kSum),
              2 * 2 * 2 * static_cast<double>(of.micro_batches) * kBoundary);
  });
}

// Whoever waits for it is told in which instruction.
TEST(PipelineStep, AStageThatFailsIsNamedWhereItIsWaitedFor) {
  for (const bool threads : {false, true}) {
    PipelineCase of{.pipeline = 2};
    of.options.lane_threads = threads;
    std::string told;
    const absl::Status status = RunRanks(2, [&](Communicator& world) {
      StepRig rig(world, "none", Of(of));
      if (world.rank() == 1) return absl::DataLossError("no more batches");
      const auto step = rig.executor().TrainStep(rig.Batch(1), 1, kLr);
      told = std::string(step.status().message());
      return absl::OkStatus();
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(told,
                AllOf(::testing::ContainsRegex("^(Send|Recv)\\(3,[a-d]\\)"),
                      // Whichever is seen first.
                      ::testing::AnyOf(HasSubstr("rank 1: no more batches"),
                                       HasSubstr("rank 1 left"))));
  }
}

}  // namespace
}  // namespace delink::testing::pipeline_step_test
