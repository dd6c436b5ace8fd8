// The device under test and its kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/device/backend.h"
#include "framework/optim/kernels.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"
#include "tools/bench/timing.h"

namespace delink::bench {

class Target {
 public:
  // The CPU, or the first CUDA device; errors as NewDeviceOf's.
  static absl::StatusOr<Target> Open(DeviceKind kind);

  DeviceKind kind() const { return device_->kind(); }
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  // Null if the device has none for the type.
  const Kernels* kernels(DType dtype) const;
  const OptimKernels& optim() const;

  // FillWithNumbers (recipes/record/machine_peak.h).
  void Fill(void* memory, int64_t bytes, bool positive = false);

  // As Repeat (timing.h), for calls that enqueue work on stream(). If a call is
  // too short to wait for it alone, a sample has several calls.
  Timing Measure(const std::function<void(int64_t)>& call,
                 RepeatOptions options);

 private:
  explicit Target(std::unique_ptr<Device> device)
      : device_(std::move(device)), stream_(device_->NewStream()) {}

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace delink::bench
