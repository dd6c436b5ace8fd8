// Runs one step's instructions over lanes: each lane in its own order, every
// instruction after what it depends on, on one thread or on one for each lane.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/step/dependencies.h"
#include "framework/step/instruction.h"

namespace delink {

class LaneRunner {
 public:
  // Called on the lane's thread, with the instruction's index and its step as
  // RunStep was told it.
  using Execute = std::function<absl::Status(int32_t index, int64_t step)>;

  // With `threads`, the network lane has a thread of its own; else the caller's
  // thread runs everything in program order, which is always legal. The program
  // and the analysis must outlive the runner.
  LaneRunner(const Program& program, const Analysis& analysis, bool threads,
             Execute execute);
  ~LaneRunner();
  LaneRunner(const LaneRunner&) = delete;
  LaneRunner& operator=(const LaneRunner&) = delete;

  // Runs a step; what it is called goes to Execute. Returns when the compute
  // lane is through; instructions of other lanes may still be under way, and
  // are ordered against the next step. The first error of any lane ends all
  // lanes.
  absl::Status RunStep(int64_t name);
  // Waits for everything.
  absl::Status Drain();

 private:
  absl::Status RunOne(int32_t index, int64_t step, int64_t name);
  bool Ready(int32_t index, int64_t step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunLane();

  const Program& program_;
  const Analysis& analysis_;
  const Execute execute_;
  std::vector<int32_t> network_;  // instructions of the network lane
  std::thread thread_;            // running them, if threads

  Mutex mutex_;
  std::condition_variable changed_;
  // By instruction: steps completed.
  std::vector<int64_t> done_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;  // steps started
  // Steps that the network lane has completed, and of those that it has not
  // begun the names.
  int64_t lane_step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<int64_t> names_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first error
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace delink
