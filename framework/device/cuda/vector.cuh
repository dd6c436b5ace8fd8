// 16-byte accesses, and numbers as the arithmetic sees them.
//
// T is float or __nv_bfloat16. Everything is computed in float; a bf16 is
// rounded once, to the nearest, ties to even, when it is stored.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "framework/device/cuda/launch.cuh"

namespace delink {
struct BFloat16;  // framework/tensor
}  // namespace delink

namespace delink::cuda {

// The device type for a table's element type.
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

// kWidth neighbours in memory: 16 bytes, which are 4 floats or 8 bf16, or,
// where nothing is aligned, one.
template <typename T, int kWidth = 16 / sizeof(T)>
struct alignas(kWidth * sizeof(T)) Pack {
  static constexpr int kSize = kWidth;
  T values[kWidth];

  __device__ float operator[](int i) const { return ToFloat(values[i]); }
};

// `from` and `to` are aligned as a Pack<T, kWidth> is.
template <typename T, int kWidth = 16 / sizeof(T)>
__device__ Pack<T, kWidth> LoadPack(const T* from) {
  Pack<T, kWidth> pack;
  if constexpr (sizeof(pack) == 16) {
    *reinterpret_cast<uint4*>(&pack) = Load16(from);
  } else {
    for (int i = 0; i < kWidth; ++i) pack.values[i] = from[i];
  }
  return pack;
}
template <typename T, int kWidth>
__device__ void StorePack(T* to, const Pack<T, kWidth>& pack) {
  if constexpr (sizeof(pack) == 16) {
    Store16(to, *reinterpret_cast<const uint4*>(&pack));
  } else {
    for (int i = 0; i < kWidth; ++i) to[i] = pack.values[i];
  }
}

// value(i) for each i of a pack, rounded to T.
template <typename T, int kWidth = 16 / sizeof(T), typename Value>
__device__ Pack<T, kWidth> MakePack(Value value) {
  Pack<T, kWidth> pack;
  if constexpr (sizeof(T) == 2 && kWidth % 2 == 0) {
    // Two at a time are one instruction.
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {
      *reinterpret_cast<__nv_bfloat162*>(pack.values + i) =
          __floats2bfloat162_rn(value(i), value(i + 1));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.values[i] = FromFloat<T>(value(i));
  }
  return pack;
}

// On the host: whether rows of `elements` T from `address` on can be read by
// packs.
template <typename T>
bool CanPack(const void* address, int64_t elements) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0 &&
         elements % Pack<T>::kSize == 0;
}

}  // namespace delink::cuda
