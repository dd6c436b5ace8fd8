#include "recipes/convert/movement.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"

namespace delink {

using safetensors::Writer;

namespace {

// Values that a thread takes and moves at a time. For a transposed matrix these
// are enough rows that each column is written in pieces of a few kB.
constexpr int64_t kPiece = int64_t{1} << 20;

// Whether existing files hold all of a tensor.
bool IsDone(const LogicalTensor& tensor, const ExportPlan& plan,
            const Writer& writer) {
  const std::vector<ExportTarget>& to = plan.targets.at(tensor.name);
  return std::all_of(to.begin(), to.end(), [&](const ExportTarget& target) {
    return writer.done(target.tensor);
  });
}

}  // namespace

Movement::Movement(ValueSource& values, const ExportPlan& plan, Writer& writer)
    : values_(values),
      plan_(plan),
      writer_(writer),
      missing_(Missing(plan, writer)) {
  for (const LogicalTensor* const tensor : plan.moves) {
    all_ += tensor->shape.elements();
  }
  done_ = all_;
  for (const LogicalTensor* const tensor : missing_) {
    done_ -= tensor->shape.elements();
  }
}

absl::Status Movement::Go(
    int threads, const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::thread> workers;
  {
    const MutexLock lock(mutex_);
    working_ = threads;
  }
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([this] { Finish(Work()); });
  }
  Watch(progress);
  for (std::thread& worker : workers) worker.join();
  const MutexLock lock(mutex_);
  return status_;
}

std::vector<const LogicalTensor*> Movement::Missing(const ExportPlan& plan,
                                                    const Writer& writer) {
  std::vector<const LogicalTensor*> missing;
  for (const LogicalTensor* const tensor : plan.moves) {
    if (!IsDone(*tensor, plan, writer)) missing.push_back(tensor);
  }
  return missing;
}

absl::Status Movement::Work() {
  SafetensorsSink sink(writer_, plan_.targets, plan_.pairs, done_);
  SelfCommunicator comm;
  while (const std::optional<Part> part = Next()) {
    sink.Only(part->rect);
    Move move;
    move.from = part->tensor;
    move.to = {part->tensor};
    DELINK_RETURN_IF_ERROR(MoveValues(values_, sink, {&move, 1}, comm, kPiece));
  }
  return absl::OkStatus();
}

// Nothing if none is left or a thread has failed. Parts are in the order of the
// files, which is the order of their digests.
std::optional<Movement::Part> Movement::Next() {
  const MutexLock lock(mutex_);
  if (!status_.ok()) return std::nullopt;
  for (; next_ < missing_.size(); ++next_, row_ = 0) {
    Rect rect = WholeOf(missing_[next_]->shape);
    if (row_ >= rect.rows || rect.columns == 0) continue;
    rect.row = row_;
    rect.rows =
        std::min(rect.rows - row_, std::max<int64_t>(kPiece / rect.columns, 1));
    row_ += rect.rows;
    return Part{.tensor = missing_[next_], .rect = rect};
  }
  return std::nullopt;
}

void Movement::Finish(const absl::Status& status) {
  const MutexLock lock(mutex_);
  status_.Update(status);
  --working_;
  finished_.notify_all();
}

void Movement::Watch(const std::function<void(int64_t, int64_t)>& progress) {
  constexpr auto kEvery = std::chrono::milliseconds(200);
  MutexLock lock(mutex_);
  while (working_ > 0) {
    if (progress) progress(done_, all_);
    lock.WaitFor(finished_, kEvery);
  }
  if (progress && status_.ok()) progress(done_, all_);
}

}  // namespace delink
