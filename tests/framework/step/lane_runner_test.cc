#include "framework/step/lane_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/at.h"
#include "framework/step/plan/basic.h"

namespace delink {
namespace {

constexpr int kSteps = 20;
constexpr int64_t kFirst = 100;  // the number of the step before the first

// Runs a program whose instructions do nothing but look whether what they
// depend on is done.
class LaneRunnerTest : public ::testing::TestWithParam<bool> {
 protected:
  LaneRunnerTest() {
    pass_.program = PlanStep({.layers = 4,
                              .slabs = 3,
                              .slabs_of_layer = {{0}, {1}, {1}, {2}},
                              .gathers = {true, true, true},
                              .micro_batches = 2,
                              .ranks = 2},
                             {});
    pass_.analysis = AnalyzeProgram(pass_.program);
    runs_ = Counters(pass_.program.instructions.size());
  }

  bool threads() const { return GetParam(); }
  const Instruction& at(int32_t index) const {
    return At(pass_.program.instructions, index);
  }
  int64_t runs(int32_t index) const { return At(runs_, index).load(); }

  // What one instruction does.
  absl::Status Visit(int32_t index, int64_t name) {
    const int64_t step = runs(index) + 1;
    EXPECT_EQ(name, kFirst + step) << "a lane that lags has its own step";
    for (const Dependency& d : At(pass_.analysis.dependencies, index)) {
      EXPECT_GE(runs(d.instruction), d.previous_step ? step - 1 : step)
          << ToString(at(index)) << " before " << ToString(at(d.instruction));
    }
    if (at(index).lane == Lane::kNetwork) {
      network_ = std::this_thread::get_id();
      // Late enough that whoever does not wait is seen.
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ++At(runs_, index);
    return absl::OkStatus();
  }

  int32_t First(Op op) const {
    int32_t index = 0;
    while (at(index).op != op) ++index;
    return index;
  }

  using Counters = std::vector<std::atomic<int64_t>>;
  Pass pass_;
  Counters runs_;  // by instruction
  std::thread::id network_;
};

TEST_P(LaneRunnerTest, RunsEverythingOnceAStepAfterWhatItDependsOn) {
  {
    LaneRunner lanes(threads(), [this](const Pass&, int32_t i, int64_t step) {
      return Visit(i, step);
    });
    for (int step = 1; step <= kSteps; ++step) {
      ASSERT_TRUE(lanes.Run(pass_, kFirst + step).ok());
    }
    ASSERT_TRUE(lanes.Drain().ok());
    for (const auto& runs : runs_) EXPECT_EQ(runs.load(), kSteps);
  }
  EXPECT_EQ(network_ != std::this_thread::get_id(), threads());
}

TEST_P(LaneRunnerTest, AnErrorOfAnyLaneEndsAll) {
  for (const Op op : {Op::kBackward, Op::kReduce, Op::kFetch}) {
    const int32_t bad = First(op);
    for (auto& runs : runs_) runs = 0;
    LaneRunner lanes(threads(), [&](const Pass&, int32_t i, int64_t step) {
      if (i == bad && runs(i) == 1) return absl::DataLossError("bad");
      return Visit(i, step);
    });
    absl::Status status;
    // The step after that in which a network lane fails may be the one to tell.
    for (int step = 1; step <= 3 && status.ok(); ++step) {
      status = lanes.Run(pass_, kFirst + step);
    }
    EXPECT_EQ(status, absl::DataLossError("bad")) << ToString(at(bad));
    EXPECT_EQ(lanes.Run(pass_, kFirst), status) << "the first error stays";
    EXPECT_EQ(lanes.Drain(), status);
    EXPECT_EQ(runs(bad), 1);
    EXPECT_LE(runs(First(Op::kNorm)), op == Op::kFetch ? 2 : 1);
  }
}

TEST_P(LaneRunnerTest, MayBeDestroyedWhileLanesAreAtWork) {
  LaneRunner lanes(threads(), [this](const Pass&, int32_t i, int64_t step) {
    return Visit(i, step);
  });
  EXPECT_TRUE(lanes.Run(pass_, kFirst + 1).ok());
}

// One thread of the network lane serves all passes; each begins as if its own
// step before were complete.
TEST_P(LaneRunnerTest, PassesTakeTurns) {
  const ProgramShape& shape = pass_.program.shape;
  Pass others[2];
  others[0].program = PlanGradients(shape, {.recompute = true});
  others[1].program = PlanEvaluation(shape);
  size_t most = pass_.program.instructions.size();
  for (Pass& other : others) {
    other.analysis = AnalyzeProgram(other.program);
    most = std::max(most, other.program.instructions.size());
  }
  const Pass* const turns[] = {&pass_,     &pass_, &others[0], &pass_,
                               &others[1], &pass_, &others[0], &others[0]};
  std::vector<std::atomic<int>> runs(most);  // by instruction, of the last pass
  std::atomic<const Pass*> running = nullptr;
  std::set<std::thread::id> network;
  {
    LaneRunner lanes(threads(), [&](const Pass& pass, int32_t index, int64_t) {
      EXPECT_EQ(&pass, running.load());
      for (const Dependency& d : At(pass.analysis.dependencies, index)) {
        EXPECT_GE(At(runs, d.instruction).load(),
                  At(runs, index).load() + (d.previous_step ? 0 : 1));
      }
      if (At(pass.program.instructions, index).lane == Lane::kNetwork) {
        network.insert(std::this_thread::get_id());
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      ++At(runs, index);
      return absl::OkStatus();
    });
    for (int64_t turn = 0; turn < 8; ++turn) {
      if (turns[turn] != running) {
        ASSERT_TRUE(lanes.Drain().ok());
        for (auto& count : runs) count = 0;
        running = turns[turn];
      }
      ASSERT_TRUE(lanes.Run(*turns[turn], turn).ok());
    }
    ASSERT_TRUE(lanes.Drain().ok());
  }
  EXPECT_EQ(network.size(), 1U);
}

// The last pass is under way for as long as its fetches take.
TEST(LaneRunnerDeathTest, AnotherPassIsRefusedWhileTheLastOneIsUnderWay) {
  Pass first, other;
  first.program = PlanStep({.layers = 2,
                            .slabs = 1,
                            .slabs_of_layer = {{0}, {0}},
                            .gathers = {true},
                            .ranks = 2},
                           {});
  first.analysis = AnalyzeProgram(first.program);
  other.program = PlanEvaluation(first.program.shape);
  other.analysis = AnalyzeProgram(other.program);
  const auto run = [&] {
    LaneRunner lanes(true, [&](const Pass& pass, int32_t index, int64_t) {
      const Instruction& at = At(pass.program.instructions, index);
      if (at.op == Op::kFetch) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
      return absl::OkStatus();
    });
    (void)lanes.Run(first, 1);
    (void)lanes.Run(other, 2);
  };
  EXPECT_DEATH(run(), "another pass is under way");
}

INSTANTIATE_TEST_SUITE_P(Threads, LaneRunnerTest, ::testing::Bool(),
                         [](const auto& info) {
                           return std::string(info.param ? "Lanes" : "One");
                         });

}  // namespace
}  // namespace delink
