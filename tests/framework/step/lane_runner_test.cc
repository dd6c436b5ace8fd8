#include "framework/step/engine/lane_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/comm/thread_communicator.h"
#include "framework/step/plan/basic.h"

namespace delink::lane_runner_test {
namespace {

constexpr int kSteps = 20;
constexpr int64_t kFirst = 100;  // the number of the step before the first

using PendingPtr = std::unique_ptr<Pending>;
using Clock = std::chrono::steady_clock;

// Finished so long after it is made; then `end` is called, whose status is its
// result.
class Later final : public Pending {
 public:
  Later(Clock::duration time, std::function<absl::Status()> end)
      : at_(Clock::now() + time), end_(std::move(end)) {}

 private:
  absl::StatusOr<bool> Poll() override {
    if (Clock::now() < at_) return false;
    absl::Status status = end_();
    if (!status.ok()) return status;
    return true;
  }

  const Clock::time_point at_;
  const std::function<absl::Status()> end_;
};

class Until final : public Pending {
 public:
  explicit Until(std::function<bool()> done) : done_(std::move(done)) {}

 private:
  absl::StatusOr<bool> Poll() override { return done_(); }

  const std::function<bool()> done_;
};

// Finished so long after somebody is `told`.
PendingPtr AfterTold(const std::atomic<bool>& told, Clock::duration time) {
  return std::make_unique<Until>(
      [&told, time, since = Clock::time_point()]() mutable {
        if (!told) return false;
        if (since == Clock::time_point()) since = Clock::now();
        return Clock::now() - since >= time;
      });
}

PendingPtr Failed() {
  return std::make_unique<Later>(Clock::duration(0),
                                 [] { return absl::DataLossError("bad"); });
}

// Late enough that whoever does not wait is seen.
constexpr std::chrono::microseconds kLate(200);

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

  // What one instruction does. Those of the network are done later.
  PendingPtr Visit(int32_t index, int64_t name) {
    const int64_t step = runs(index) + 1;
    EXPECT_EQ(name, kFirst + step) << "a lane that lags has its own step";
    for (const Dependency& d : At(pass_.analysis.dependencies, index)) {
      EXPECT_GE(runs(d.instruction), d.previous_step ? step - 1 : step)
          << ToString(at(index)) << " before " << ToString(at(d.instruction));
    }
    if (at(index).lane == Lane::kNetwork) {
      network_ = std::this_thread::get_id();
      return std::make_unique<Later>(kLate, [this, index] {
        ++At(runs_, index);
        return absl::OkStatus();
      });
    }
    ++At(runs_, index);
    return nullptr;
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

// What is waited for in the middle of an instruction may be what another lane
// does: here that the second reduction, too, is through.
TEST_P(LaneRunnerTest, LanesGoOnWhileAnInstructionWaitsWithin) {
  const auto last = [&](Op op) {
    auto index = static_cast<int32_t>(pass_.program.instructions.size()) - 1;
    while (at(index).op != op) --index;
    return index;
  };
  const int32_t visit = last(Op::kBackward);
  int32_t reduce = First(Op::kReduce) + 1;
  while (at(reduce).op != Op::kReduce) ++reduce;
  ASSERT_LT(reduce, visit);
  LaneRunner* within = nullptr;
  int waits = 0;
  LaneRunner lanes(
      threads(),
      [&](const Pass&, int32_t i, int64_t step) {
        if (i == visit) {
          const Clock::time_point end = Clock::now() + std::chrono::seconds(20);
          Until done(
              [&] { return runs(reduce) > runs(visit) || Clock::now() > end; });
          EXPECT_TRUE(within->WaitWithin(done).ok());
          EXPECT_GT(runs(reduce), runs(visit)) << "nobody drove the lane";
        }
        return Visit(i, step);
      },
      [&](const Pass&, int32_t i, int64_t) { waits += i == visit ? 1 : 0; });
  within = &lanes;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(lanes.Run(pass_, kFirst + step).ok());
  }
  EXPECT_TRUE(lanes.Drain().ok());
  EXPECT_GT(waits, 0) << "who looks on is told in which instruction";
}

TEST_P(LaneRunnerTest, AnErrorOfAnyLaneEndsAll) {
  for (const Op op : {Op::kBackward, Op::kReduce, Op::kGather}) {
    const int32_t bad = First(op);
    for (auto& runs : runs_) runs = 0;
    LaneRunner lanes(threads(), [&](const Pass&, int32_t i, int64_t step) {
      if (i == bad && runs(i) == 1) return Failed();
      return Visit(i, step);
    });
    absl::Status status;
    // The step after that in which a network lane fails may be the one to tell.
    for (int step = 1; step <= 3 && status.ok(); ++step) {
      status = lanes.Run(pass_, kFirst + step);
    }
    EXPECT_EQ(status, absl::DataLossError(ToString(at(bad)) + ": bad"));
    EXPECT_EQ(lanes.Run(pass_, kFirst), status) << "the first error stays";
    EXPECT_EQ(lanes.Drain(), status);
    EXPECT_EQ(runs(bad), 1);
    EXPECT_LE(runs(First(Op::kNorm)), op == Op::kGather ? 2 : 1);
  }
}

// What is under way is waited for, because its buffers are in use.
TEST_P(LaneRunnerTest, MayBeDestroyedWhileLanesAreAtWork) {
  std::atomic<int> begun = 0, ended = 0;
  {
    LaneRunner lanes(threads(), [&](const Pass&, int32_t i, int64_t step) {
      PendingPtr visit = Visit(i, step);
      if (visit == nullptr) return visit;
      ++begun;
      return PendingPtr(std::make_unique<Later>(
          5 * kLate, [&, visit = std::shared_ptr<Pending>(std::move(visit))] {
            ++ended;
            return visit->Wait();
          }));
    });
    EXPECT_TRUE(lanes.Run(pass_, kFirst + 1).ok());
  }
  EXPECT_GT(begun.load(), 0);
  EXPECT_EQ(begun.load(), ended.load());
}

TEST_P(LaneRunnerTest, AnErrorWaitsForWhatOtherLanesHaveUnderWay) {
  // The last backward: a reduction is under way.
  int32_t bad = First(Op::kNorm);
  while (at(bad).op != Op::kBackward) --bad;
  std::atomic<int> begun = 0, ended = 0;
  {
    LaneRunner lanes(threads(), [&](const Pass&, int32_t i, int64_t) {
      if (i == bad) {
        while (begun.load() == 0) std::this_thread::yield();
        return Failed();
      }
      if (at(i).lane == Lane::kCompute) return PendingPtr();
      ++begun;
      return PendingPtr(std::make_unique<Later>(100 * kLate, [&] {
        ++ended;
        return absl::OkStatus();
      }));
    });
    const absl::Status status = lanes.Run(pass_, kFirst + 1);
    EXPECT_EQ(status, absl::DataLossError(ToString(at(bad)) + ": bad"));
    EXPECT_EQ(lanes.Drain(), status);
    EXPECT_GT(begun.load(), 0);
    EXPECT_EQ(begun.load(), ended.load());
  }
  EXPECT_EQ(begun.load(), ended.load());
}

// What compute waits for is told once, and how long that takes is counted.
TEST_P(LaneRunnerTest, SaysWhatComputeWaitsFor) {
  constexpr auto kTime = std::chrono::milliseconds(20);
  // Before it, nothing that updates need is reduced.
  const int32_t reduce = First(Op::kReduce), norm = First(Op::kNorm);
  int32_t waiting = -1;
  std::vector<int32_t> waits;
  std::atomic<bool> told_reduce = false, told_norm = false;
  LaneRunner lanes(
      threads(),
      [&](const Pass&, int32_t i, int64_t) {
        EXPECT_TRUE(at(i).lane != Lane::kCompute || waiting == -1);
        if (i != reduce && i != norm) return PendingPtr();
        return AfterTold(i == reduce ? told_reduce : told_norm, kTime);
      },
      [&](const Pass& pass, int32_t i, int64_t name) {
        EXPECT_EQ(&pass, &pass_);
        EXPECT_EQ(name, kFirst + 1);
        EXPECT_NE(i < 0, waiting < 0) << "one begins when one has ended";
        waiting = i;
        if (i >= 0) waits.push_back(i);
        if (i == reduce) told_reduce = true;
        if (i == norm) told_norm = true;
      });
  EXPECT_EQ(lanes.waited().all, 0);
  ASSERT_TRUE(lanes.Run(pass_, kFirst + 1).ok());
  ASSERT_TRUE(lanes.Drain().ok());
  EXPECT_EQ(waiting, -1);
  // Other lanes' instructions take no time, but a thread's.
  EXPECT_EQ(std::count(waits.begin(), waits.end(), reduce), 1);
  EXPECT_EQ(std::count(waits.begin(), waits.end(), norm), 1);
  const std::chrono::duration<double> time = kTime;
  EXPECT_GE(lanes.waited().all, 2 * time.count());
  // For the norm, and not for what is reduced.
  const double stages = lanes.waited().stages;
  EXPECT_GE(stages, time.count());
  EXPECT_LE(stages, lanes.waited().all - time.count());
}

// Whoever drains may wait for other ranks as well.
TEST_P(LaneRunnerTest, SaysWhatADrainWaitsFor) {
  auto last = static_cast<int32_t>(pass_.program.instructions.size()) - 1;
  while (at(last).op != Op::kGather) --last;
  std::atomic<bool> begun = false, told = false;
  const Clock::time_point late = Clock::now() + std::chrono::seconds(5);
  int32_t waiting = -1;
  LaneRunner lanes(
      threads(),
      [&](const Pass&, int32_t i, int64_t) {
        if (i != last) return PendingPtr();
        begun = true;
        // Untold it ends as well, so that this does.
        return PendingPtr(std::make_unique<Until>(
            [&] { return told || Clock::now() > late; }));
      },
      [&](const Pass& pass, int32_t i, int64_t name) {
        EXPECT_EQ(&pass, &pass_);
        EXPECT_EQ(name, kFirst + 1);
        waiting = i;
        if (i == last) told = true;
      });
  ASSERT_TRUE(lanes.Run(pass_, kFirst + 1).ok());
  while (!begun) std::this_thread::yield();
  const double waited = lanes.waited().all;
  ASSERT_TRUE(lanes.Drain().ok());
  EXPECT_TRUE(told);
  EXPECT_EQ(waiting, -1);
  EXPECT_EQ(lanes.waited().all, waited) << "that is no run's";
  // Where all lanes are through, nothing is told.
  told = false;
  ASSERT_TRUE(lanes.Drain().ok());
  EXPECT_FALSE(told);
}

TEST_P(LaneRunnerTest, WithoutARunADrainTellsNothing) {
  int waits = 0;
  LaneRunner lanes(
      threads(), [](const Pass&, int32_t, int64_t) { return PendingPtr(); },
      [&](const Pass&, int32_t, int64_t) { ++waits; });
  EXPECT_TRUE(lanes.Drain().ok());
  EXPECT_EQ(waits, 0);
}

// The event loop sleeps while it has nothing to look after.
TEST(LaneRunnerIdleTest, NothingToDoTakesNoTime) {
  LaneRunner lanes(true,
                   [](const Pass&, int32_t, int64_t) { return PendingPtr(); });
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

// One of two ranks that exchange in lanes of their own, each transfer for
// itself: a Send waits for its Recv.
class ExchangeTest : public ::testing::TestWithParam<bool> {
 protected:
  // An instruction that waits for those numbered `after`.
  static void Add(Pass& pass, Op op, Lane lane,
                  const std::vector<int32_t>& after) {
    pass.program.instructions.push_back({.op = op, .lane = lane});
    pass.analysis.dependencies.emplace_back();
    for (const int32_t i : after) {
      pass.analysis.dependencies.back().push_back({.instruction = i});
    }
  }
  static absl::Status RunBoth(const std::function<Pass(int rank)>& make) {
    return RunRanks(2, [&](Communicator& comm) {
      const Pass pass = make(comm.rank());
      const int peer = 1 - comm.rank();
      int64_t sent = 0, received = 0, sum = 0;
      LaneRunner lanes(
          GetParam(), [&](const Pass&, int32_t index, int64_t name) {
            const Op op = At(pass.program.instructions, index).op;
            switch (op) {
              case Op::kSend:
                sent = 10 * name + comm.rank();
                return comm.Send(&sent, 1, DType::kI64, peer, 0);
              case Op::kRecv:
                return comm.Recv(&received, 1, DType::kI64, peer, 0);
              case Op::kNorm:
                sum = name;
                return comm.AllReduce(&sum, 1, DType::kI64, ReduceOp::kSum);
              default:
                return PendingPtr();
            }
          });
      for (int64_t step = 1; step <= kSteps; ++step) {
        received = -1;
        if (absl::Status s = lanes.Run(pass, step); !s.ok()) return s;
        if (absl::Status s = lanes.Drain(); !s.ok()) return s;
        EXPECT_EQ(received, 10 * step + peer);
        EXPECT_EQ(sum, 2 * step);
      }
      return absl::OkStatus();
    });
  }
};

TEST_P(ExchangeTest, TwoThatBothSendGetPastEachOther) {
  EXPECT_EQ(RunBoth([](int) {
              Pass pass;
              Add(pass, Op::kForward, Lane::kCompute, {});
              Add(pass, Op::kSend, Lane::kOut, {0});
              Add(pass, Op::kRecv, Lane::kIn, {});
              Add(pass, Op::kBackward, Lane::kCompute, {2});
              Add(pass, Op::kNorm, Lane::kCompute, {});
              return pass;
            }),
            absl::OkStatus());
}

// Rank 0 has to send while its compute lane is in a collective that rank 1
// comes to when it has received.
TEST_P(ExchangeTest, ACollectiveOfComputeHoldsUpNoOtherLane) {
  EXPECT_EQ(RunBoth([](int rank) {
              Pass pass;
              if (rank == 0) {
                Add(pass, Op::kRecv, Lane::kIn, {});
                Add(pass, Op::kSend, Lane::kOut, {0});
                Add(pass, Op::kNorm, Lane::kCompute, {});
              } else {
                Add(pass, Op::kSend, Lane::kOut, {});
                Add(pass, Op::kRecv, Lane::kIn, {});
                Add(pass, Op::kForward, Lane::kCompute, {1});
                Add(pass, Op::kNorm, Lane::kCompute, {});
              }
              return pass;
            }),
            absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Threads, ExchangeTest, ::testing::Bool(),
                         [](const auto& info) {
                           return std::string(info.param ? "Lanes" : "One");
                         });

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
        return PendingPtr(std::make_unique<Later>(kLate, [&runs, index] {
          ++At(runs, index);
          return absl::OkStatus();
        }));
      }
      ++At(runs, index);
      return PendingPtr();
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
      if (at.op != Op::kGather) return PendingPtr();
      return PendingPtr(std::make_unique<Later>(
          std::chrono::seconds(1), [] { return absl::OkStatus(); }));
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
}  // namespace delink::lane_runner_test
