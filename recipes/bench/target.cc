#include "recipes/bench/target.h"

#include <algorithm>
#include <vector>

#include "framework/base/status_macros.h"
#include "layers/kernels/find_kernels.h"

namespace delink::bench {
namespace {

// A sample that drowns what the host needs to wait for a device.
constexpr double kShortestAsynchronous = 2e-3;
// Numbers repeat after so many bytes, an odd number of pages and a bit.
constexpr int64_t kPeriod = (int64_t{1023} << 12) + 256;

std::vector<uint16_t> Numbers(int64_t count, bool positive) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  uint32_t state = 1;
  for (uint16_t& value : values) {
    state = state * 1664525U + 1013904223U;
    const uint32_t sign = positive ? 0 : state >> 31 << 15;
    value = static_cast<uint16_t>(sign | (0x3d80U + (state >> 16) % 0x200));
  }
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NewDeviceOf(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return NewCpuDevice();
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, NewCudaDevice(0));
  DELINK_RETURN_IF_ERROR(CheckKernels(kind));
  return device;
}

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
  const std::vector<uint16_t> numbers =
      Numbers(std::min(bytes, kPeriod) / 2, positive);
  for (int64_t at = 0; at + 2 <= bytes; at += kPeriod) {
    device_->CopyFromHost(*stream_, static_cast<char*>(memory) + at,
                          numbers.data(),
                          std::min(bytes - at, kPeriod) / 2 * 2);
  }
  stream_->Synchronize();
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
