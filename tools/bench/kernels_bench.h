// What the benchmarks of kernels share: a table for T (float or BFloat16), its
// memory, and counters.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/find_kernels.h"

namespace delink {

// A device's memory for numbers, none of them 0 or denormal.
template <typename T>
class Numbers {
 public:
  explicit Numbers(int64_t count) : values_(count) {
    for (int64_t i = 0; i < count; ++i) {
      values_[i] = T(static_cast<float>(i * 7919 % 1009 - 504) * 2e-3F + 1e-4F);
    }
  }
  T* data() { return values_.data(); }

 private:
  std::vector<T> values_;
};

template <typename T>
struct Bench {
  std::unique_ptr<Device> device = NewCpuDevice();
  std::unique_ptr<Stream> stream = device->NewStream();
  const Kernels& kernels = *FindKernels(
      DeviceKind::kCpu, std::is_same_v<T, float> ? DType::kF32 : DType::kBF16);
};

inline void CountFlops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

// Of `count` numbers of type T that are read or written.
template <typename T>
void CountBytes(benchmark::State& state, int64_t count) {
  state.SetBytesProcessed(state.iterations() * count *
                          static_cast<int64_t>(sizeof(T)));
}

}  // namespace delink
