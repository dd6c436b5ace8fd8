#include "framework/step/lane_runner.h"

#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/device/profile.h"

namespace delink {

LaneRunner::LaneRunner(bool threads, Execute execute)
    : execute_(std::move(execute)), threads_(threads) {
  if (threads) thread_ = std::thread([this] { RunNetwork(); });
}

LaneRunner::~LaneRunner() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool LaneRunner::Ready(const Begun& run, int32_t index) const {
  for (const Dependency& d : At(run.pass->analysis.dependencies, index)) {
    const int64_t needed = d.previous_step ? run.step - 1 : run.step;
    if (At(done_, d.instruction) < needed) return false;
  }
  return true;
}

absl::Status LaneRunner::RunOne(const Begun& run, int32_t index) {
  {
    MutexLock lock(mutex_);
    while (!stop_ && status_.ok() && !Ready(run, index)) lock.Wait(changed_);
    if (!status_.ok()) return status_;
    if (stop_) return absl::CancelledError("the lanes are shutting down");
  }
  absl::Status status = execute_(*run.pass, index, run.name);
  {
    const MutexLock lock(mutex_);
    At(done_, index) = run.step;
    if (!status.ok() && status_.ok()) status_ = status;
  }
  changed_.notify_all();
  return status;
}

absl::Status LaneRunner::RunLane(const Begun& run, bool network) {
  const std::vector<Instruction>& instructions = run.pass->program.instructions;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const bool there = threads_ && instructions[i].lane == Lane::kNetwork;
    if (there != network) continue;
    DELINK_RETURN_IF_ERROR(RunOne(run, static_cast<int32_t>(i)));
  }
  return absl::OkStatus();
}

void LaneRunner::RunNetwork() {
  NameThread("network lane");
  while (true) {
    Begun run;
    {
      MutexLock lock(mutex_);
      while (!stop_ && status_.ok() && ahead_.empty()) lock.Wait(changed_);
      if (stop_ || !status_.ok()) return;
      run = ahead_.front();
    }
    if (!RunLane(run, true).ok()) return;
    {
      const MutexLock lock(mutex_);
      ahead_.pop_front();
    }
    changed_.notify_all();
  }
}

absl::Status LaneRunner::Run(const Pass& pass, int64_t name) {
  const bool another = last_.pass != &pass;
  last_ = {.pass = &pass, .step = another ? 1 : last_.step + 1, .name = name};
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    if (another) {
      DELINK_CHECK(ahead_.empty()) << "another pass is under way";
      // As if the step before were complete.
      done_.assign(pass.program.instructions.size(), 0);
    }
    if (threads_) ahead_.push_back(last_);
  }
  changed_.notify_all();
  return RunLane(last_, false);
}

absl::Status LaneRunner::Drain() {
  MutexLock lock(mutex_);
  while (status_.ok() && !ahead_.empty()) lock.Wait(changed_);
  return status_;
}

}  // namespace delink
