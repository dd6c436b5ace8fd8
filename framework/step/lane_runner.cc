#include "framework/step/lane_runner.h"

#include <utility>

#include "framework/base/at.h"
#include "framework/device/profile.h"

namespace delink {

LaneRunner::LaneRunner(const Program& program, const Analysis& analysis,
                       bool threads, Execute execute)
    : program_(program),
      analysis_(analysis),
      execute_(std::move(execute)),
      done_(program.instructions.size(), 0) {
  if (!threads) return;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].lane == Lane::kNetwork) {
      network_.push_back(static_cast<int32_t>(i));
    }
  }
  if (!network_.empty()) thread_ = std::thread([this] { RunLane(); });
}

LaneRunner::~LaneRunner() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LaneRunner::Ready(int32_t index, int64_t step) const {
  for (const Dependency& d : At(analysis_.dependencies, index)) {
    const int64_t needed = d.previous_step ? step - 1 : step;
    if (At(done_, d.instruction) < needed) return false;
  }
  return true;
}

absl::Status LaneRunner::RunOne(int32_t index, int64_t step, int64_t name) {
  {
    MutexLock lock(mutex_);
    while (!stop_ && status_.ok() && !Ready(index, step)) lock.Wait(changed_);
    if (!status_.ok()) return status_;
    if (stop_) return absl::CancelledError("the lanes are shutting down");
  }
  absl::Status status = execute_(index, name);
  {
    const MutexLock lock(mutex_);
    At(done_, index) = step;
    if (!status.ok() && status_.ok()) status_ = status;
  }
  changed_.notify_all();
  return status;
}

void LaneRunner::RunLane() {
  NameThread("network lane");
  for (int64_t step = 1;; ++step) {
    int64_t name = 0;
    {
      MutexLock lock(mutex_);
      while (!stop_ && status_.ok() && step_ < step) lock.Wait(changed_);
      if (stop_ || !status_.ok()) return;
      name = names_.front();
      names_.pop_front();
    }
    for (const int32_t index : network_) {
      if (!RunOne(index, step, name).ok()) return;
    }
    {
      const MutexLock lock(mutex_);
      lane_step_ = step;
    }
    changed_.notify_all();
  }
}

absl::Status LaneRunner::RunStep(int64_t name) {
  int64_t step = 0;
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    step = ++step_;
    if (thread_.joinable()) names_.push_back(name);
  }
  changed_.notify_all();
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    const bool elsewhere =
        thread_.joinable() && program_.instructions[i].lane == Lane::kNetwork;
    if (elsewhere) continue;
    if (absl::Status s = RunOne(static_cast<int32_t>(i), step, name); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status LaneRunner::Drain() {
  MutexLock lock(mutex_);
  if (thread_.joinable()) {
    while (status_.ok() && lane_step_ < step_) lock.Wait(changed_);
  }
  return status_;
}

}  // namespace delink
