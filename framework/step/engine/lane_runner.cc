#include "framework/step/engine/lane_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/backoff.h"
#include "framework/device/profile.h"

namespace delink {

// Lives while the caller waits for an instruction; `counts`: in a run.
class LaneRunner::Wait {
 public:
  Wait(LaneRunner& lanes, int32_t index, bool counts = true)
      : lanes_(lanes),
        counts_(counts),
        op_(At(lanes.last_.pass->program.instructions, index).op),
        begin_(std::chrono::steady_clock::now()) {
    Tell(index);
  }
  ~Wait() {
    Tell(-1);
    if (!counts_) return;
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin_;
    lanes_.waited_.all += took.count();
    if (op_ == Op::kSend || op_ == Op::kRecv || op_ == Op::kNorm) {
      lanes_.waited_.stages += took.count();
    }
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  void Tell(int32_t index) const {
    const Begun& run = lanes_.last_;
    if (lanes_.waits_ != nullptr) lanes_.waits_(*run.pass, index, run.name);
  }

  LaneRunner& lanes_;
  const bool counts_;
  const Op op_;
  const std::chrono::steady_clock::time_point begin_;
};

LaneRunner::LaneRunner(bool threads, Execute execute, Waits waits)
    : execute_(std::move(execute)),
      waits_(std::move(waits)),
      threads_(threads) {
  if (threads) thread_ = std::thread([this] { RunLanes(); });
}

LaneRunner::~LaneRunner() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

int32_t LaneRunner::Awaited(const Begun& run, int32_t index) const {
  for (const Dependency& d : At(run.pass->analysis.dependencies, index)) {
    const int64_t needed = d.previous_step ? run.step - 1 : run.step;
    if (At(done_, d.instruction) < needed) return d.instruction;
  }
  return -1;
}

void LaneRunner::Complete(const Begun& run, int32_t index,
                          const absl::Status& status) {
  if (status.ok()) {
    At(done_, index) = run.step;
  } else if (status_.ok()) {
    const Instruction& at = At(run.pass->program.instructions, index);
    status_ = absl::Status(status.code(),
                           absl::StrCat(ToString(at), ": ", status.message()));
  }
}

bool LaneRunner::Through() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const Queue& queue) { return queue.runs.empty(); });
}

absl::Status LaneRunner::Run(const Pass& pass, int64_t name) {
  const bool another = last_.pass != &pass;
  last_ = {.pass = &pass, .step = another ? 1 : last_.step + 1, .name = name};
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    if (another) DealOut(pass);
    for (Queue& queue : queues_) {
      if (&queue == &At(queues_, Lane::kCompute)) continue;
      if (!queue.instructions.empty()) queue.runs.push_back(last_);
    }
    ++changes_;
  }
  changed_.notify_all();
  absl::Status status;
  for (const int32_t index : At(queues_, Lane::kCompute).instructions) {
    status = RunOne(last_, index);
    if (!status.ok()) break;
  }
  if (threads_ || !others_) return status;
  if (status.ok()) status = WaitForAll();
  if (!status.ok()) Finish();
  return status;
}

// The step before counts as complete.
void LaneRunner::DealOut(const Pass& pass) {
  DELINK_CHECK(Through()) << "another pass is under way";
  const std::vector<Instruction>& instructions = pass.program.instructions;
  done_.assign(instructions.size(), 0);
  for (Queue& queue : queues_) queue.instructions.clear();
  others_ = false;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Lane lane = instructions[i].lane;
    At(queues_, lane).instructions.push_back(static_cast<int32_t>(i));
    others_ |= lane != Lane::kCompute;
  }
}

absl::Status LaneRunner::Drain() {
  // Without a thread, Run has waited for everything.
  const int32_t awaited = threads_ ? Outstanding() : -1;
  std::optional<Wait> wait;
  if (awaited >= 0) wait.emplace(*this, awaited, false);
  MutexLock lock(mutex_);
  while (status_.ok() ? !Through() : threads_ && !over_) lock.Wait(changed_);
  return status_;
}

absl::Status LaneRunner::RunOne(const Begun& run, int32_t index) {
  if (others_) DELINK_RETURN_IF_ERROR(WaitUntilReady(run, index));
  begun_ = index;
  const std::unique_ptr<Pending> pending = execute_(*run.pass, index, run.name);
  absl::Status status;
  if (pending != nullptr) status = WaitFor(*pending, index);
  {
    const MutexLock lock(mutex_);
    Complete(run, index, status);
    ++changes_;
    if (!status_.ok()) status = status_;
  }
  changed_.notify_all();
  return status;
}

absl::Status LaneRunner::WaitUntilReady(const Begun& run, int32_t index) {
  // Instructions that can overlap with this one begin first.
  if (!threads_) (void)Advance();
  int32_t awaited = -1;
  {
    const MutexLock lock(mutex_);
    if (!status_.ok()) return status_;
    awaited = Awaited(run, index);
  }
  if (awaited < 0) return absl::OkStatus();
  const Wait wait(*this, awaited);
  if (!threads_) return DriveUntil(&run, index);
  MutexLock lock(mutex_);
  while (status_.ok() && !Ready(run, index)) lock.Wait(changed_);
  return status_;
}

// The instruction that a lane is at; -1: all lanes are through.
int32_t LaneRunner::Outstanding() {
  const MutexLock lock(mutex_);
  for (const Queue& queue : queues_) {
    if (!queue.runs.empty()) return queue.index();
  }
  return -1;
}

// Without a thread: until all lanes are through.
absl::Status LaneRunner::WaitForAll() {
  const int32_t awaited = Outstanding();
  if (awaited < 0) return absl::OkStatus();
  const Wait wait(*this, awaited);
  return DriveUntil(nullptr, 0);
}

// Waits for what a compute instruction has posted. It must be finished even if
// other lanes fail.
absl::Status LaneRunner::WaitFor(Pending& pending, int32_t index) {
  DELINK_ASSIGN_OR_RETURN(bool done, pending.Test());
  if (done) return absl::OkStatus();
  const Wait wait(*this, index);
  if (threads_ || !others_) return pending.Wait();
  Backoff backoff;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(done, pending.Test());
    if (done) return absl::OkStatus();
    if (Advance().moved) {
      backoff.Reset();
    } else {
      backoff.Pause();
    }
  }
}

// Until the instruction is ready; without `run`, until all lanes are through.
absl::Status LaneRunner::DriveUntil(const Begun* run, int32_t index) {
  Backoff backoff;
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (!status_.ok()) return status_;
      if (run != nullptr ? Ready(*run, index) : Through()) return status_;
    }
    const Round round = Advance();
    if (round.moved) {
      backoff.Reset();
      continue;
    }
    DELINK_CHECK(round.under_way) << "lanes wait for each other";
    backoff.Pause();
  }
}

// Goes once round the lanes: tests operations under way, begins what is ready.
LaneRunner::Round LaneRunner::Advance() {
  MarkThoseThatBegin();
  Round round;
  for (Queue& queue : queues_) {
    if (queue.begins || queue.under_way != nullptr) Step(queue, round);
  }
  return round;
}

void LaneRunner::MarkThoseThatBegin() {
  const MutexLock lock(mutex_);
  for (Queue& queue : queues_) {
    queue.begins = !stop_ && status_.ok() && queue.under_way == nullptr &&
                   !queue.runs.empty() &&
                   Ready(queue.runs.front(), queue.index());
    if (queue.begins) queue.run = queue.runs.front();
  }
}

void LaneRunner::Step(Queue& queue, Round& round) {
  if (queue.begins) {
    queue.under_way = execute_(*queue.run.pass, queue.index(), queue.run.name);
    round.moved = true;
  }
  absl::Status status;
  if (queue.under_way != nullptr) {
    const absl::StatusOr<bool> done = queue.under_way->Test();
    if (done.ok() && !*done) {
      round.under_way = true;
      return;
    }
    status = done.status();
    queue.under_way.reset();
    round.moved = true;
  }
  {
    const MutexLock lock(mutex_);
    Complete(queue.run, queue.index(), status);
    if (++queue.place == queue.instructions.size()) {
      queue.place = 0;
      queue.runs.pop_front();
    }
  }
  changed_.notify_all();
}

// After an error, or to end: begins nothing more. It tests all lanes in turn,
// because another rank may wait for the next part of any operation here.
void LaneRunner::Finish() {
  Backoff backoff;
  while (true) {
    const Round round = Advance();
    if (!round.moved && !round.under_way) return;
    backoff.Pause();
  }
}

void LaneRunner::RunLanes() {
  NameThread("lanes");
  Backoff backoff;
  while (true) {
    int64_t seen = 0;
    {
      const MutexLock lock(mutex_);
      if (stop_ || !status_.ok()) break;
      seen = changes_;
    }
    const Round round = Advance();
    if (round.moved) {
      backoff.Reset();
    } else {
      Rest(round.under_way ? &backoff : nullptr, seen);
    }
  }
  Finish();
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
}

// Sleeps until the caller has done something since `seen`; if an operation is
// under way, no longer than `backoff` says.
void LaneRunner::Rest(Backoff* backoff, int64_t seen) {
  using std::chrono::microseconds;
  const microseconds pause =
      backoff != nullptr ? backoff->Next() : microseconds::max();
  if (pause.count() == 0) return;
  MutexLock lock(mutex_);
  while (changes_ == seen && !stop_) {
    if (backoff != nullptr) return lock.WaitFor(changed_, pause);
    lock.Wait(changed_);
  }
}

}  // namespace delink
