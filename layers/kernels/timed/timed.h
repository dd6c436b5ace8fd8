// The CPU as a device that notes when each of its kernels began and ended, and
// what there was to do: for `delink bench`, which runs real steps on it. The
// kernels are the CPU's own, so a step has the same bits; reading the clock
// twice takes some tens of nanoseconds a call.
//
// Zeroing memory (Device::FillZero) is noted as the kernel "fill_zero".
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "framework/device/backend.h"
#include "layers/kernels/kernels.h"
#include "layers/kernels/work.h"

namespace delink {

struct KernelCall {
  Work work;
  std::chrono::steady_clock::time_point begin, end;
};

// Added to by any thread; read when none is at work.
class KernelCalls {
 public:
  void Add(const KernelCall& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(call);
  }
  // In the order in which they ended.
  const std::vector<KernelCall>& calls() const { return calls_; }
  void Clear() { calls_.clear(); }

 private:
  std::mutex mutex_;
  std::vector<KernelCall> calls_;  // by mutex_
};

// `calls` must outlive the device's streams.
std::unique_ptr<Device> NewTimedCpuDevice(KernelCalls& calls);

namespace timed {
// For streams of a timed device only. Null where the CPU has no table.
const Kernels* Table(DType dtype);
}  // namespace timed

}  // namespace delink
