// Runs the instructions of passes: each lane in its own order, each instruction
// after its dependencies.
//
// An instruction is complete at once or, if it posts an operation, when that is
// complete. The compute lane runs on the caller's thread. One event loop drives
// all other lanes: on a separate thread or, without one, on the caller's,
// before each compute instruction and while compute waits. The loop never
// blocks: a lane whose operation waits for another rank does not hold up the
// other lanes of this rank. So two neighbours that both send in one lane and
// receive in another do not block each other.
//
// The order is the one that the validator's joint execution assumes, with and
// without a thread: lanes in order, at most one operation of each under way, an
// instruction begun once its dependencies are complete. So a program that the
// validator passed does not deadlock here.
//
// Errors. After the first error no lane begins anything more, but operations
// under way are waited for, because their buffers are in use. The transport
// fails these operations if the error is its own, so that the wait ends. Code
// that makes an error of which other ranks cannot know must end the group first
// (Communicator::Abort), or the wait never ends. The same holds for destroying
// a runner that was not drained while other ranks go on.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/comm/backoff.h"
#include "framework/comm/communicator.h"
#include "framework/step/program/pass.h"

namespace delink {

// How long the compute lane waited, as its thread saw it.
struct WaitedSeconds {
  double all = 0;  // for other lanes and for what it has posted itself
  // The part of it for other stages of a pipeline: for transfers, and in kNorm,
  // where all stages wait for the last. A wait counts by what it waits for
  // first.
  double stages = 0;

  WaitedSeconds operator-(const WaitedSeconds& before) const {
    return {.all = all - before.all, .stages = stages - before.stages};
  }
};

class LaneRunner {
 public:
  // Begins the instruction `index`; `step` is the name that Run got. Null: it
  // is complete on return and has not failed. Called by the thread that drives
  // the lane, which also tests the result; within a lane, when the instruction
  // before is complete.
  using Execute = std::function<std::unique_ptr<Pending>(
      const Pass& pass, int32_t index, int64_t step)>;

  // Called by the caller's thread when it begins to wait for an instruction: in
  // Run for one of another lane, for its own or for an exchange within that, in
  // Drain for the other lanes. Called with index -1 when the wait ends.
  using Waits =
      std::function<void(const Pass& pass, int32_t index, int64_t step)>;

  // With `threads`, one thread drives all lanes other than compute, for all
  // passes.
  LaneRunner(bool threads, Execute execute, Waits waits = nullptr);
  ~LaneRunner();
  LaneRunner(const LaneRunner&) = delete;
  LaneRunner& operator=(const LaneRunner&) = delete;

  // Runs a pass, which must outlive the runner; `name` goes to Execute. Returns
  // when the compute lane is done. With a thread, instructions of other lanes
  // may still be under way; the next run of the same pass is ordered against
  // them. They must be complete (Drain) before another pass runs. An error
  // begins with the instruction's name.
  absl::Status Run(const Pass& pass, int64_t name);
  // For a compute instruction that waits on the host while it is begun: the
  // other lanes go on meanwhile, as when Run waits.
  absl::Status WaitWithin(Pending& pending) { return WaitFor(pending, begun_); }
  // Waits for everything; after an error for all that is under way.
  absl::Status Drain();
  // Over all runs. Called by the thread that calls Run.
  const WaitedSeconds& waited() const { return waited_; }

 private:
  // Run number `step` of a pass, from 1, since another pass ran.
  struct Begun {
    const Pass* pass = nullptr;
    int64_t step = 0;
    int64_t name = 0;
  };
  // The compute lane's queue has only instructions. Fields that are not written
  // under the mutex belong to the event loop. The instructions do not change
  // while there are runs.
  struct Queue {
    std::vector<int32_t> instructions;  // of the pass
    std::deque<Begun> runs;             // not complete, the oldest first
    Begun run;                          // the oldest, once it has begun
    size_t place = 0;                   // in instructions, of that run
    std::unique_ptr<Pending> under_way;
    bool begins = false;  // in this round

    int32_t index() const { return instructions[place]; }
  };
  // What a round of the event loop found.
  struct Round {
    bool moved = false;      // something was begun or completed
    bool under_way = false;  // something is
  };

  // The first instruction that this one has to wait for; -1: it may begin.
  int32_t Awaited(const Begun& run, int32_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Ready(const Begun& run, int32_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Awaited(run, index) < 0;
  }
  void Complete(const Begun& run, int32_t index, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Through() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DealOut(const Pass& pass) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The compute lane.
  class Wait;
  absl::Status RunOne(const Begun& run, int32_t index);
  absl::Status WaitUntilReady(const Begun& run, int32_t index);
  absl::Status WaitFor(Pending& pending, int32_t index);
  absl::Status WaitForAll();
  int32_t Outstanding();

  // The event loop.
  Round Advance();
  void MarkThoseThatBegin();
  void Step(Queue& queue, Round& round);
  void Finish();
  absl::Status DriveUntil(const Begun* run, int32_t index);
  void RunLanes();
  void Rest(Backoff* backoff, int64_t seen);

  const Execute execute_;
  const Waits waits_;
  const bool threads_;
  // Of the caller's thread: the last run, and whether its pass has lanes beside
  // compute.
  Begun last_;
  bool others_ = false;
  int32_t begun_ = -1;  // the instruction of compute that is being begun
  WaitedSeconds waited_;

  Mutex mutex_;
  std::condition_variable changed_;
  // How often the caller did what other lanes may wait for.
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  // By instruction of the last pass: how often it has completed.
  std::vector<int64_t> done_ ABSL_GUARDED_BY(mutex_);
  std::array<Queue, kLanes> queues_;             // by lane
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first error
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the event loop
  std::thread thread_;                         // of the event loop, if threads
};

}  // namespace delink
