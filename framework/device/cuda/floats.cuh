// Runs of numbers in registers, as floats: one, or whole packs of 16 bytes.
#pragma once

#include "framework/device/cuda/vector.cuh"

namespace delink::cuda {

// kSize is 1, or a multiple of Pack<T>::kSize; then `from` and `to` are 16-byte
// aligned.
template <int kSize, typename T>
__device__ void LoadFloats(const T* from, float (&to)[kSize]) {
  if constexpr (kSize == 1) {
    to[0] = ToFloat(*from);
  } else {
    constexpr int kPack = Pack<T>::kSize;
    static_assert(kSize % kPack == 0);
#pragma unroll
    for (int i = 0; i < kSize; i += kPack) {
      const Pack<T> pack = LoadPack(from + i);
#pragma unroll
      for (int j = 0; j < kPack; ++j) to[i + j] = pack[j];
    }
  }
}

template <int kSize, typename T>
__device__ void StoreFloats(T* to, const float (&from)[kSize]) {
  if constexpr (kSize == 1) {
    *to = FromFloat<T>(from[0]);
  } else {
    constexpr int kPack = Pack<T>::kSize;
    static_assert(kSize % kPack == 0);
#pragma unroll
    for (int i = 0; i < kSize; i += kPack) {
      StorePack(to + i, MakePack<T>([&](int j) { return from[i + j]; }));
    }
  }
}

// to (=|+=) from, of the gradient of a parameter.
template <int kSize, typename P>
__device__ void StoreGradient(P* to, const float (&from)[kSize],
                              bool accumulate) {
  float sum[kSize] = {};
  if (accumulate) LoadFloats(to, sum);
#pragma unroll
  for (int i = 0; i < kSize; ++i) sum[i] += from[i];
  StoreFloats(to, sum);
}

}  // namespace delink::cuda
