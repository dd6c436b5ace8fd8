#include "tools/bench/target.h"

#include <algorithm>
#include <functional>

#include "framework/base/status_macros.h"
#include "framework/optim/find_kernels.h"
#include "layers/kernels/find_kernels.h"
#include "recipes/record/machine_peak.h"
#include "recipes/run/setup/choose_device.h"

namespace delink::bench {
namespace {

// Long enough to make the cost of waiting for a device negligible.
constexpr double kShortestAsynchronous = 2e-3;
}  // namespace

absl::StatusOr<Target> Target::Open(DeviceKind kind) {
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, NewDeviceOf(kind));
  Target target(std::move(device));
  DELINK_RETURN_IF_ERROR(target.stream_->Prepare());
  return target;
}

const Kernels* Target::kernels(DType dtype) const {
  return FindKernels(kind(), dtype);
}

const OptimKernels& Target::optim() const {
  return *FindOptimKernels(kind(), DType::kF32);
}

void Target::Fill(void* memory, int64_t bytes, bool positive) {
  FillWithNumbers(*device_, *stream_, memory, bytes, positive);
}

Timing Target::Measure(const std::function<void(int64_t)>& call,
                       RepeatOptions options) {
  if (IsCuda(kind())) {
    options.shortest = std::min(kShortestAsynchronous, options.seconds);
    options.finish = [this] { stream_->Synchronize(); };
  }
  return Repeat(call, options);
}

}  // namespace delink::bench
