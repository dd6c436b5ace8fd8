// Runs passes over lanes: each lane in its own order, every instruction after
// what it depends on.
//
// An instruction is begun, and is then complete at once or when what it has
// posted is. The compute lane is the caller's thread. All other lanes are
// driven by one event loop, of a thread of its own or, without, of the caller:
// before each instruction of compute and while compute waits. Nothing in it
// blocks: a lane whose operation waits for another rank holds up no other lane
// of this one. So two neighbours that both send, each in one lane, and both
// receive in another, get past each other.
//
// What runs when is thereby what the validator's joint execution has executed:
// lanes in order, one operation of each under way, an instruction begun once
// all that it depends on is complete, with and without a thread. A program that
// it passed does not deadlock here.
//
// Errors. The first of any lane ends all: nothing more is begun, by any lane,
// but what is under way is waited for, because its buffers are in use. That
// ends where the error is the transport's, which then fails all that is under
// way. Whoever makes an error that other ranks cannot know of ends the group
// first (Communicator::Abort), or this waits for them for ever. The same goes
// for destroying a runner that was not drained while other ranks go on.
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
#include "framework/step/pass.h"

namespace delink {

// Of the compute lane, as its thread saw it.
struct WaitedSeconds {
  double all = 0;  // for other lanes and for what it has posted itself
  // Of that for other stages of a pipeline: for what they send and receive,
  // and in kNorm, which all are at when the last is through. Counted by what
  // is waited for first.
  double stages = 0;

  WaitedSeconds operator-(const WaitedSeconds& before) const {
    return {.all = all - before.all, .stages = stages - before.stages};
  }
};

class LaneRunner {
 public:
  // Begins an instruction: its index, and the step as Run was told it. Null
  // where it is complete on return, and so never fails. Called by the thread
  // that drives the lane, which also tests what it gives; of a lane, when the
  // instruction before is complete.
  using Execute = std::function<std::unique_ptr<Pending>(
      const Pass& pass, int32_t index, int64_t step)>;

  // Told by the caller's thread when it begins to wait: in Run, until an
  // instruction of another lane is complete, or its own, or something within
  // that, in Drain for the others; and when that is over (-1).
  using Waits =
      std::function<void(const Pass& pass, int32_t index, int64_t step)>;

  // With `threads`, all lanes but compute have a thread, one for all of them
  // and for all passes.
  LaneRunner(bool threads, Execute execute, Waits waits = nullptr);
  ~LaneRunner();
  LaneRunner(const LaneRunner&) = delete;
  LaneRunner& operator=(const LaneRunner&) = delete;

  // Runs a pass, which must outlive the runner; `name` goes to Execute. Returns
  // when the compute lane is through; instructions of other lanes may, with a
  // thread, still be under way, and are ordered against the next run of the
  // same pass. Another pass than the last may be given when all of that is
  // complete (Drain). An error begins with the instruction's name.
  absl::Status Run(const Pass& pass, int64_t name);
  // For an instruction of compute that waits on the host while it is begun: as
  // Run waits, so that the other lanes go on meanwhile.
  absl::Status WaitWithin(Pending& pending) { return WaitFor(pending, begun_); }
  // Waits for everything; after an error for all that is under way.
  absl::Status Drain();
  // In all runs. Called by the thread that calls Run.
  const WaitedSeconds& waited() const { return waited_; }

 private:
  // A run of a pass: number `step` since another pass ran, from 1.
  struct Begun {
    const Pass* pass = nullptr;
    int64_t step = 0;
    int64_t name = 0;
  };
  // The compute lane's has instructions alone. What is not written under the
  // mutex belongs to the event loop; the instructions stay as long as there are
  // runs.
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
  // By instruction of the last pass: how often it is complete.
  std::vector<int64_t> done_ ABSL_GUARDED_BY(mutex_);
  std::array<Queue, kLanes> queues_;             // by lane
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first error
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the event loop
  std::thread thread_;                         // of the event loop, if threads
};

}  // namespace delink
