#include "framework/step/lane_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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
  LaneRunnerTest()
      : program_(PlanStep({.layers = 4,
                           .slabs = 3,
                           .slabs_of_layer = {{0}, {1}, {1}, {2}},
                           .gathers = {true, true, true},
                           .micro_batches = 2},
                          {})),
        analysis_(AnalyzeProgram(program_)),
        runs_(program_.instructions.size()) {}

  bool threads() const { return GetParam(); }
  const Instruction& at(int32_t index) const {
    return At(program_.instructions, index);
  }
  int64_t runs(int32_t index) const { return At(runs_, index).load(); }

  // What one instruction does.
  absl::Status Visit(int32_t index, int64_t name) {
    const int64_t step = runs(index) + 1;
    EXPECT_EQ(name, kFirst + step) << "a lane that lags has its own step";
    for (const Dependency& d : At(analysis_.dependencies, index)) {
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

  const Program program_;
  const Analysis analysis_;
  std::vector<std::atomic<int64_t>> runs_;  // by instruction
  std::thread::id network_;
};

TEST_P(LaneRunnerTest, RunsEverythingOnceAStepAfterWhatItDependsOn) {
  {
    LaneRunner lanes(
        program_, analysis_, threads(),
        [this](int32_t i, int64_t step) { return Visit(i, step); });
    for (int step = 1; step <= kSteps; ++step) {
      ASSERT_TRUE(lanes.RunStep(kFirst + step).ok());
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
    LaneRunner lanes(program_, analysis_, threads(),
                     [&](int32_t i, int64_t step) {
                       if (i == bad && runs(i) == 1)
                         return absl::DataLossError("bad");
                       return Visit(i, step);
                     });
    absl::Status status;
    // The step after that in which a network lane fails may be the one to tell.
    for (int step = 1; step <= 3 && status.ok(); ++step) {
      status = lanes.RunStep(kFirst + step);
    }
    EXPECT_EQ(status, absl::DataLossError("bad")) << ToString(at(bad));
    EXPECT_EQ(lanes.RunStep(kFirst), status) << "the first error stays";
    EXPECT_EQ(lanes.Drain(), status);
    EXPECT_EQ(runs(bad), 1);
    EXPECT_LE(runs(First(Op::kNorm)), op == Op::kFetch ? 2 : 1);
  }
}

TEST_P(LaneRunnerTest, MayBeDestroyedWhileLanesAreAtWork) {
  LaneRunner lanes(program_, analysis_, threads(),
                   [this](int32_t i, int64_t step) { return Visit(i, step); });
  EXPECT_TRUE(lanes.RunStep(kFirst + 1).ok());
}

INSTANTIATE_TEST_SUITE_P(Threads, LaneRunnerTest, ::testing::Bool(),
                         [](const auto& info) {
                           return std::string(info.param ? "Lanes" : "One");
                         });

}  // namespace
}  // namespace delink
