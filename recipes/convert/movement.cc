#include "recipes/convert/movement.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"

namespace delink {

using safetensors::Writer;

namespace {

// Values that a thread moves at a time: of a matrix that is transposed enough
// rows that what is written of each column is a few kB.
constexpr int64_t kPiece = int64_t{1} << 20;

}  // namespace

Movement::Movement(std::string checkpoint, const Layout& layout,
                   const ExportPlan& plan, Writer& writer)
    : checkpoint_(std::move(checkpoint)),
      layout_(layout),
      plan_(plan),
      writer_(writer) {
  for (const LogicalTensor* const tensor : plan.moves) {
    all_ += tensor->shape.elements();
    if (IsDone(*tensor)) done_ += tensor->shape.elements();
  }
}

absl::Status Movement::Go(
    int threads, const std::function<void(int64_t, int64_t)>& progress) {
  // More would have nothing to do.
  threads = std::min(threads, static_cast<int>(plan_.moves.size()));
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

// Whether all of a tensor is in files that were there already.
bool Movement::IsDone(const LogicalTensor& tensor) const {
  const std::vector<ExportTarget>& to = plan_.targets.at(tensor.name);
  return std::all_of(to.begin(), to.end(), [this](const ExportTarget& target) {
    return writer_.done(target.tensor);
  });
}

absl::Status Movement::Work() {
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues values,
      CheckpointValues::Open(checkpoint_, layout_, {}, DType::kF32));
  SafetensorsSink sink(writer_, plan_.targets, plan_.pairs, done_);
  SelfCommunicator comm;
  while (const LogicalTensor* const tensor = Next()) {
    DELINK_RETURN_IF_ERROR(values.Check({}, *tensor));
    Move move;
    move.from = tensor;
    move.to = {tensor};
    DELINK_RETURN_IF_ERROR(MoveValues(values, sink, {&move, 1}, comm, kPiece));
  }
  return absl::OkStatus();
}

// Null where none is left, or somebody has failed.
const LogicalTensor* Movement::Next() {
  const MutexLock lock(mutex_);
  while (status_.ok() && next_ < plan_.moves.size()) {
    const LogicalTensor* const tensor = plan_.moves[next_++];
    if (!IsDone(*tensor)) return tensor;
  }
  return nullptr;
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
