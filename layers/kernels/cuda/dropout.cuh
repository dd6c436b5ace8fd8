// Dropout: y = keep ? x / (1 - rate) : 0, with the same words of Philox
// (framework/base/rng.h) as on the CPU.
//
// A sample's elements are contiguous in memory and in the generator's counters.
// They are processed in groups of a pack. The first group may begin before the
// sample, so that every group starts at a whole counter. A block has groups of
// one sample, kDropoutGroups a thread; one thread derives the sample's key. Any
// shape works; rows of whole packs at aligned addresses are read by 16 bytes.
//
// If tokens' places need not be consecutive, or a call has only some tokens or
// columns, the same is done for each token, and a block has several tokens.
#pragma once

#include "framework/base/rng.h"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

inline constexpr int kDropoutThreads = 256;  // at most
inline constexpr int kDropoutGroups = 4;     // a thread loads together

struct DropoutPlan {
  int64_t size;        // elements of a sample
  int64_t skip;        // elements of the first group before the sample
  uint64_t counter;    // of the first group
  unsigned blocks;     // of a sample
  uint32_t threshold;  // least upper 24 bits of the word of a kept element
  float scale;
};

// Scales the kept elements of a group. Dropped elements become 0 even if they
// were not finite, since this is a mask, not a product.
template <typename T>
__device__ Pack<T> DropSome(const Pack<T>& x, RngKey key, uint64_t counter,
                            const DropoutPlan& plan) {
  uint32_t words[Pack<T>::kSize];
#pragma unroll
  for (int first = 0; first < Pack<T>::kSize; first += 4) {
    const auto four = Philox(key, counter + first / 4, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[first + i] = four[i];
  }
  return MakePack<T>([&](int i) {
    return (words[i] >> 8) >= plan.threshold ? x[i] * plan.scale : 0.0F;
  });
}

template <typename T, bool kPacked>
__device__ Pack<T> LoadGroup(const T* sample, int64_t at, int64_t size) {
  if constexpr (kPacked) {
    return LoadPack(sample + at);
  } else {
    return MakePack<T>([&](int i) {
      const bool inside = at + i >= 0 && at + i < size;
      return inside ? ToFloat(sample[at + i]) : 0.0F;
    });
  }
}

template <typename T, bool kPacked>
__device__ void StoreGroup(T* sample, int64_t at, int64_t size,
                           const Pack<T>& group) {
  if constexpr (kPacked) {
    StorePack(sample + at, group);
  } else {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      if (at + i >= 0 && at + i < size) sample[at + i] = group.values[i];
    }
  }
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kDropoutThreads)
    DropoutKernel(DropoutArgs s, DropoutPlan plan) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ uint32_t shared_key[2];
  const int64_t b = blockIdx.x / plan.blocks;
  const int64_t block = blockIdx.x % plan.blocks;
  const int64_t first = block * (kDropoutGroups * blockDim.x) + threadIdx.x;
  const T* const x = static_cast<const T*>(s.x) + b * plan.size;
  T* const y = static_cast<T*>(s.y) + b * plan.size;

  Pack<T> groups[kDropoutGroups];
#pragma unroll
  for (int i = 0; i < kDropoutGroups; ++i) {
    const int64_t at = (first + i * blockDim.x) * kSize - plan.skip;
    if (at < plan.size) groups[i] = LoadGroup<T, kPacked>(x, at, plan.size);
  }
  if (threadIdx.x == 0) {
    const RngKey key = Fold(Fold(*s.step_key, s.name_hash),
                            static_cast<uint64_t>(s.sample[b]));
    shared_key[0] = key.lo;
    shared_key[1] = key.hi;
  }
  __syncthreads();
  const RngKey key = {shared_key[0], shared_key[1]};
#pragma unroll
  for (int i = 0; i < kDropoutGroups; ++i) {
    const int64_t group = first + i * blockDim.x;
    const int64_t at = group * kSize - plan.skip;
    if (at >= plan.size) break;
    const uint64_t counter =
        plan.counter + static_cast<uint64_t>(group) * (kSize / 4);
    StoreGroup<T, kPacked>(y, at, plan.size,
                           DropSome(groups[i], key, counter, plan));
  }
}

// Each y index of a block has one token; the threads along x have its groups.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kDropoutThreads)
    DropoutRowsKernel(DropoutArgs s, DropoutPlan plan, int64_t rows) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ uint32_t keys[kDropoutThreads][2];
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t token = s.first_row + row;
  if (threadIdx.x == 0 && row < rows) {
    const RngKey key = Fold(Fold(*s.step_key, s.name_hash),
                            static_cast<uint64_t>(s.sample[token / s.T]));
    keys[threadIdx.y][0] = key.lo;
    keys[threadIdx.y][1] = key.hi;
  }
  __syncthreads();
  if (row >= rows) return;
  const RngKey key = {keys[threadIdx.y][0], keys[threadIdx.y][1]};
  const int64_t t = token % s.T;
  const int64_t place =
      s.places != nullptr ? s.places[t] : s.first_position + t;
  const int64_t width = s.width > 0 ? s.width : s.D;
  const int64_t stride = s.width > 0 ? s.pitch : s.D;
  const int64_t first = place * width + s.first_column;
  const int64_t skip = first % kSize;
  const T* const x = static_cast<const T*>(s.x) + row * stride;
  T* const y = static_cast<T*>(s.y) + row * stride;
  for (int64_t group = threadIdx.x; group * kSize - skip < s.D;
       group += blockDim.x) {
    const int64_t at = group * kSize - skip;
    const auto counter = static_cast<uint64_t>((first + at) / 4);
    StoreGroup<T, kPacked>(
        y, at, s.D,
        DropSome(LoadGroup<T, kPacked>(x, at, s.D), key, counter, plan));
  }
}

}  // namespace delink::cuda
