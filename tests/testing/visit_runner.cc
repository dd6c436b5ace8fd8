#include "tests/testing/visit_runner.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "layers/ops/accumulate.h"

namespace delink::testing {
namespace {

Buffer Take(Device& device, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, bytes);
  DELINK_CHECK(buffer.ok());
  return *std::move(buffer);
}

// All ones is a NaN in every floating type.
void Poison(const Buffer& buffer) {
  std::memset(buffer.data(), 0xFF, static_cast<size_t>(buffer.bytes()));
}

// In the place of another, where nothing is to be exchanged; or null.
std::unique_ptr<NotedGroup> Imagined(const VisitGroup* group) {
  if (group == nullptr) return nullptr;
  auto imagined = std::make_unique<NotedGroup>(group->rank(), group->size());
  imagined->set_nodes(group->nodes());
  return imagined;
}

}  // namespace

VisitRunner::VisitRunner(const Options& options)
    : options_(options), stream_(options.device->NewStream()) {
  DELINK_CHECK(options.device->kind() == DeviceKind::kCpu);
  if (options_.memory == MemoryMode::kPlanned) {
    Measure();
    int64_t workspace = 0;
    for (const PhasePlan& phase : plan_) {
      workspace = std::max(workspace, phase.workspace_bytes);
    }
    slot_ = Take(*options_.device, At(plan_, Phase::kRecord).slot_bytes);
    held_ = Take(*options_.device, At(plan_, Phase::kBackwardInput).slot_bytes);
    workspace_ = Take(*options_.device, workspace);
    auto planned = std::make_unique<PlannedMemory>(plan_);
    planned_ = planned.get();
    memory_ = std::move(planned);
  }
}

void VisitRunner::Measure() {
  const std::unique_ptr<Device> meta = NewMetaDevice();
  const std::unique_ptr<Stream> stream = meta->NewStream();
  MeasuringMemory memory;
  const auto tensor = Imagined(options_.groups.tensor);
  const auto context = Imagined(options_.groups.context);
  const auto expert = Imagined(options_.groups.expert);
  Tape tape({.device = meta.get(),
             .stream = stream.get(),
             .accumulate = Accumulate,
             .groups = {.tensor = tensor.get(),
                        .context = context.get(),
                        .expert = expert.get(),
                        .sequence = options_.groups.sequence,
                        .same_tokens = options_.groups.same_tokens}},
            memory);
  const auto note = [&](Phase phase) {
    At(plan_, phase) = memory.Plan();
    At(exchanges_, phase).clear();
    for (NotedGroup* group : {tensor.get(), expert.get()}) {
      if (group == nullptr) continue;
      for (const Exchange& exchange : group->TakeNotes()) {
        At(exchanges_, phase).push_back(exchange);
      }
    }
  };
  void* const anywhere = *meta->Allocate(0, "inputs");
  const Tensor input(anywhere, options_.x_dtype, options_.x);
  options_.bind();
  Var x, y;
  Tensor dy;
  const auto forward = [&](Phase phase, bool again = false) {
    VisitInputs inputs = options_.inputs;
    inputs.training = inputs.training && phase != Phase::kEval;
    inputs.again = again;
    tape.BeginForward(phase, inputs);
    x = tape.Input(input, options_.x_needs_grad);
    y = options_.layer(x);
    if (!options_.loss) {
      tape.Finish(y, Tensor());
      dy = Tensor(anywhere, y.dtype(), y.shape());
    }
    note(phase);
  };
  forward(Phase::kEval);
  forward(Phase::kForward);
  forward(Phase::kRecord);
  tape.RunBackward(y, dy, x, input);
  note(Phase::kBackward);
  forward(Phase::kRecord, /*again=*/true);
  tape.RunBackwardInput(y, dy, x, input);
  note(Phase::kBackwardInput);
  tape.RunBackwardWeight();
  note(Phase::kBackwardWeight);
}

void VisitRunner::Forward(Phase phase, const VisitInputs& inputs,
                          const Tensor& x, const Tensor& y) {
  if (planned_ == nullptr) {
    memory_ = std::make_unique<HeapMemory>(*options_.device);
  } else {
    Poison(workspace_);
    if (phase == Phase::kRecord) Poison(slot_);
    planned_->Bind({.slot = slot_.data(),
                    .workspace = workspace_.data(),
                    .boundary = y.data()});
  }
  tape_ = std::make_unique<Tape>(Tape::Env{.device = options_.device,
                                           .stream = stream_.get(),
                                           .accumulate = Accumulate,
                                           .groups = options_.groups},
                                 *memory_);
  tape_->BeginForward(phase, inputs);
  x_ = tape_->Input(x, options_.x_needs_grad);
  y_ = options_.layer(x_);
  if (!options_.loss) tape_->Finish(y_, y);
}

void VisitRunner::Backward(const Tensor& dy, const Tensor& dx) {
  if (planned_ != nullptr) Poison(workspace_);
  tape_->RunBackward(y_, dy, x_, dx);
}

void VisitRunner::BackwardInput(const Tensor& dy, const Tensor& dx) {
  if (planned_ != nullptr) {
    Poison(workspace_);
    Poison(held_);
    planned_->Bind({.slot = held_.data(), .workspace = workspace_.data()});
  }
  tape_->RunBackwardInput(y_, dy, x_, dx);
}

void VisitRunner::BackwardWeight() {
  if (planned_ != nullptr) {
    Poison(workspace_);
    planned_->Bind({.workspace = workspace_.data()});
  }
  tape_->RunBackwardWeight();
}

}  // namespace delink::testing
