// Dropout: y = keep ? x / (1 - rate) : 0, by the words of Philox
// (framework/base/rng.h) that the CPU uses.
//
// A sample's elements lie together in memory and in the generator's counters.
// They are taken in groups of a pack, the first of which may begin before the
// sample, so that every group starts at a whole counter. A block has
// kDropoutGroups groups a thread of one sample, whose key one thread derives.
// Any shape; rows that are whole packs from aligned addresses go by 16 bytes.
//
// Where tokens' places need not follow each other, or a call has some tokens or
// columns alone, a token is what a sample is above, and a block has several.
#pragma once

#include "framework/base/rng.h"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

inline constexpr int kDropoutThreads = 256;  // at most
inline constexpr int kDropoutGroups = 4;     // of a thread, loaded together

struct DropoutPlan {
  int64_t size;        // elements of a sample
  int64_t skip;        // elements of the first group before the sample
  uint64_t counter;    // of the first group
  unsigned blocks;     // of a sample
  uint32_t threshold;  // what the upper 24 bits of a kept element's word reach
  float scale;
};

// The kept elements of a group, scaled. A mask, not a product: what is dropped
// is 0, even if it was not finite.
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

// A block's threads in y have a token each, those in x all its groups.
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
