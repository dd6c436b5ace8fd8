// 16-byte accesses, and numbers as the arithmetic sees them.
//
// T is float or __nv_bfloat16. Everything is computed in float; a bf16 is
// rounded once, to the nearest, ties to even, when it is stored.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "framework/device/cuda/launch.cuh"
#include "framework/tensor/bfloat16.h"

namespace delink::cuda {

// The type by which device code reads a table's dtype.
template <typename T>
struct OnDevice {
  using Type = T;
};
template <>
struct OnDevice<BFloat16> {
  using Type = __nv_bfloat16;
};
template <typename T>
using DeviceType = typename OnDevice<T>::Type;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// 16 bytes of T: 4 floats or 8 bf16.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

// `from` and `to` are 16-byte aligned.
template <typename T>
__device__ Pack<T> LoadPack(const T* from) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = *reinterpret_cast<const uint4*>(from);
  return pack;
}
template <typename T>
__device__ void StorePack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&pack);
}

// On the host: whether rows of `elements` T from `address` on can be read by
// packs.
template <typename T>
bool CanPack(const void* address, int64_t elements) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0 &&
         elements % Pack<T>::kSize == 0;
}

}  // namespace delink::cuda
