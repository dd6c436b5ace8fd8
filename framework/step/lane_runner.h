// Runs passes over lanes: each lane in its own order, every instruction after
// what it depends on, on one thread or on one for each lane.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/step/pass.h"

namespace delink {

class LaneRunner {
 public:
  // Called on the lane's thread, with the instruction's index and the step as
  // Run was told it.
  using Execute = std::function<absl::Status(const Pass& pass, int32_t index,
                                             int64_t step)>;

  // With `threads`, the network lane has a thread of its own, one for all
  // passes; else the caller's thread runs everything in program order, which is
  // always legal.
  LaneRunner(bool threads, Execute execute);
  ~LaneRunner();
  LaneRunner(const LaneRunner&) = delete;
  LaneRunner& operator=(const LaneRunner&) = delete;

  // Runs a pass, which must outlive the runner; `name` goes to Execute. Returns
  // when the compute lane is through; instructions of other lanes may still be
  // under way, and are ordered against the next run of the same pass. Another
  // pass than the last may be given when all of that is complete (Drain). The
  // first error of any lane ends all lanes.
  absl::Status Run(const Pass& pass, int64_t name);
  // Waits for everything.
  absl::Status Drain();

 private:
  // A run of a pass: number `step` since another pass ran, from 1.
  struct Begun {
    const Pass* pass = nullptr;
    int64_t step = 0;
    int64_t name = 0;
  };
  absl::Status RunOne(const Begun& run, int32_t index);
  bool Ready(const Begun& run, int32_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its instructions in the network lane, or those in all others; where there
  // is no thread, all are others.
  absl::Status RunLane(const Begun& run, bool network);
  void RunNetwork();

  const Execute execute_;
  const bool threads_;
  Begun last_;  // of the caller's thread

  Mutex mutex_;
  std::condition_variable changed_;
  // By instruction of the last pass: how often it has run.
  std::vector<int64_t> done_ ABSL_GUARDED_BY(mutex_);
  // What the network lane has not completed, the oldest first.
  std::deque<Begun> ahead_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first error
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // of the network lane, if threads
};

}  // namespace delink
