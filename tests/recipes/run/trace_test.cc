// What the executor records of training steps: everything once, in order.
#include "framework/step/time/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing::trace_test {
namespace {

constexpr double kLr = 1e-3;
constexpr int kRanks = 2;
constexpr int64_t kFirst = 2, kLast = 4, kSteps = 6;
constexpr int64_t kMicroBatches = 4;

// By step, then by instruction.
using Steps = std::map<int64_t, std::vector<Trace::Span>>;

RigOptions Options(int zero) {
  return {.micro_batch = 1,
          .global_batch = kRanks * kMicroBatches,
          .recompute = true,
          .lane_threads = true,
          .zero = zero};
}

// Spans of the executor's program, each found once.
Steps Sorted(const Trace& trace, size_t instructions) {
  Steps steps;
  std::map<std::pair<int64_t, int32_t>, int> count;
  for (const Trace::Span& span : trace.spans()) {
    EXPECT_EQ(span.program, 0);
    EXPECT_EQ((++count[{span.step, span.index}]), 1);
    EXPECT_LE(span.begin, span.end);
    auto& step = steps[span.step];
    step.resize(instructions);
    step.at(static_cast<size_t>(span.index)) = span;
  }
  EXPECT_EQ(count.size(), instructions * (kLast - kFirst + 1));
  return steps;
}

void ExpectDependenciesHold(const Steps& steps, const Program& program,
                            const Analysis& analysis) {
  int seen = 0;
  for (const auto& [step, spans] : steps) {
    std::map<Lane, Trace::Clock::time_point> ended;
    for (size_t i = 0; i < spans.size(); ++i) {
      const Instruction& at = program.instructions[i];
      EXPECT_GE(spans[i].begin, ended[at.lane]) << ToString(at);
      ended[at.lane] = spans[i].end;
      for (const Dependency& d : analysis.dependencies[i]) {
        if (d.previous_step && step == kFirst) continue;
        const Trace::Span& earlier =
            steps.at(d.previous_step ? step - 1 : step)
                .at(static_cast<size_t>(d.instruction));
        EXPECT_GE(spans[i].begin, earlier.end)
            << ToString(at) << " before step " << earlier.step << "'s "
            << ToString(At(program.instructions, d.instruction));
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 0);
}

class TraceTest : public ::testing::TestWithParam<int> {};

TEST_P(TraceTest, HasEveryInstructionOnceAfterWhatItDependsOn) {
  Trace traces[kRanks] = {{kFirst, kLast}, {kFirst, kLast}};
  std::vector<Steps> steps(kRanks);
  Program program;
  OnRanks(kRanks, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    RigOptions options = Options(GetParam());
    options.trace = &traces[rank];
    StepRig rig(comm, "all", options);
    for (int64_t step = 1; step <= kSteps; ++step) {
      // Gradients alone, as a switch measures them, are not a step.
      if (step == kLast) {
        EXPECT_TRUE(rig.executor().Gradients(rig.Batch(step), step).ok());
      }
      EXPECT_TRUE(rig.executor().TrainStep(rig.Batch(step), step, kLr).ok());
    }
    EXPECT_TRUE(rig.executor().Drain().ok());
    const Program& mine = rig.executor().program();
    steps[rank] = Sorted(traces[rank], mine.instructions.size());
    ExpectDependenciesHold(steps[rank], mine, rig.executor().analysis());
    if (rank == 0) program = mine;
  });
  // No rank leaves a reduction before the other has come.
  for (const auto& [step, spans] : steps[0]) {
    for (size_t i = 0; i < spans.size(); ++i) {
      if (program.instructions[i].op != Op::kReduce) continue;
      const Trace::Span& other = steps[1].at(step).at(i);
      EXPECT_LT(spans[i].begin, other.end);
      EXPECT_LT(other.begin, spans[i].end);
    }
  }
}

TEST_P(TraceTest, SaysWhatAnInstructionWorksOn) {
  constexpr int64_t kFloat = 4;
  OnRanks(kRanks, [&](Communicator& comm) {
    Trace trace(1, 1);
    RigOptions options = Options(GetParam());
    options.trace = &trace;
    StepRig rig(comm, "all", options);
    EXPECT_EQ(trace.programs().size(), 1);
    double flops = 0;
    int64_t updated = 0, reduced = 0, gathered = 0;
    for (const Trace::Entry& entry : trace.programs().at(0)) {
      EXPECT_TRUE(entry.name.starts_with(ToString(entry.at)));
      EXPECT_EQ(entry.of.empty(), entry.at.op == Op::kNorm) << entry.name;
      EXPECT_EQ(entry.recompute_flops > 0,
                entry.at.op == Op::kBackward && entry.at.layer > 0)
          << entry.name;
      flops +=
          entry.forward_flops + entry.backward_flops + entry.recompute_flops;
      if (entry.at.op == Op::kUpdate) updated += entry.bytes;
      if (entry.at.op == Op::kReduce) reduced += entry.bytes;
      if (entry.at.op == Op::kGather) gathered += entry.bytes;
    }
    EXPECT_DOUBLE_EQ(flops, rig.executor().flops_per_micro_batch() *
                                static_cast<double>(kMicroBatches));
    int64_t elements = 0;
    for (const Slab& slab : rig.store().slabs()) elements += slab.elements;
    int64_t owned = updated;
    if (GetParam() == 1) {
      owned = *AllReduceScalar(comm, updated, ReduceOp::kSum);
    }
    EXPECT_EQ(owned, elements * kFloat);
    EXPECT_GE(reduced, elements * kFloat);
    EXPECT_EQ(gathered, GetParam() == 1 ? reduced : 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Zero, TraceTest, ::testing::Values(0, 1));

TEST(WaitedTest, OneRankAloneWaitsForNobody) {
  SelfCommunicator self;
  StepRig rig(self, "all", {.lane_threads = true});
  EXPECT_EQ(rig.executor().TrainStep(rig.Batch(1), 1, kLr)->waited.all, 0);
}

}  // namespace
}  // namespace delink::testing::trace_test
