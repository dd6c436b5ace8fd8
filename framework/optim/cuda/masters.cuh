// How an update loads gradients, and loads and stores parameters: Load and
// Store of kSize neighbours, 1, or 4 at aligned addresses.
#pragma once

#include "framework/base/rng.h"
#include "framework/device/cuda/floats.cuh"
#include "framework/optim/arguments.h"
#include "framework/tensor/master.h"

namespace delink::cuda {

template <int kSize>
__device__ void LoadHalves(const uint16_t* from, uint16_t (&to)[kSize]) {
  if constexpr (kSize == 4) {
    const uint64_t word = *reinterpret_cast<const uint64_t*>(from);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = static_cast<uint16_t>(word >> 16 * i);
  } else {
    for (int i = 0; i < kSize; ++i) to[i] = from[i];
  }
}
template <int kSize>
__device__ void WidenHalves(const uint16_t* from, float (&to)[kSize]) {
  uint16_t bits[kSize];
  LoadHalves(from, bits);
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    to[k] = __uint_as_float(uint32_t{bits[k]} << 16);
  }
}
template <int kSize>
__device__ void StoreHalves(uint16_t* to, const uint16_t (&from)[kSize]) {
  if constexpr (kSize == 4) {
    uint64_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) word |= uint64_t{from[i]} << 16 * i;
    *reinterpret_cast<uint64_t*>(to) = word;
  } else {
    for (int i = 0; i < kSize; ++i) to[i] = from[i];
  }
}

// Rounded to the nearest, ties to even.
template <int kSize>
__device__ void StoreRounded(uint16_t* to, const float (&from)[kSize]) {
  uint16_t rounded[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    rounded[k] = __bfloat16_as_ushort(__float2bfloat16_rn(from[k]));
  }
  StoreHalves(to, rounded);
}

// A gradient of the arguments: f32, or bf16 if `narrow`.
struct Gradient {
  const void* g;
  bool narrow;

  template <int kSize>
  __device__ void Load(int64_t i, float (&values)[kSize]) const {
    if (narrow) {
      WidenHalves(static_cast<const uint16_t*>(g) + i, values);
    } else {
      LoadFloats(static_cast<const float*>(g) + i, values);
    }
  }
  __device__ float operator[](int64_t i) const {
    float value[1];
    Load(i, value);
    return value[0];
  }
};

// f32, and, with w, rounded weights.
struct WholeMaster {
  float* p;     // [n]
  uint16_t* w;  // [n], may be null

  template <int kSize>
  __device__ void Load(int64_t i, float (&values)[kSize]) const {
    LoadFloats(p + i, values);
  }
  template <int kSize>
  __device__ void Store(int64_t i, const float (&values)[kSize]) const {
    StoreFloats(p + i, values);
    if (w == nullptr) return;
    StoreRounded(w + i, values);
  }
};

struct HalvesMaster {
  uint16_t* w;    // [n]
  uint16_t* low;  // [n]

  template <int kSize>
  __device__ void Load(int64_t i, float (&values)[kSize]) const {
    uint16_t upper[kSize], lower[kSize];
    LoadHalves(w + i, upper);
    LoadHalves(low + i, lower);
#pragma unroll
    for (int k = 0; k < kSize; ++k)
      values[k] = SplitMaster{upper[k], lower[k]}.Value();
  }
  template <int kSize>
  __device__ void Store(int64_t i, const float (&values)[kSize]) const {
    uint16_t upper[kSize], lower[kSize];
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const SplitMaster split = SplitMaster::Of(values[k]);
      upper[k] = split.weight;
      lower[k] = split.low;
    }
    StoreHalves(w + i, upper);
    StoreHalves(low + i, lower);
  }
};

// Rounds values by half-words [at, at + kSize) of stream `stream` of the
// generator, as arguments.h says; `at` is a multiple of kSize.
template <int kSize>
__device__ void RoundNeighbours(RngKey key, int64_t at, uint64_t stream,
                                const float (&values)[kSize],
                                uint16_t (&rounded)[kSize]) {
  const auto words = Philox(key, static_cast<uint64_t>(at) / 8, stream);
  const bool upper = at % 8 >= 4;
  const uint32_t pair[] = {upper ? words[2] : words[0],
                           upper ? words[3] : words[1]};
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const int64_t half = at + k;
    const uint32_t word = half % 4 < 2 ? pair[0] : pair[1];
    const auto random =
        static_cast<uint16_t>(half % 2 == 0 ? word : word >> 16);
    rounded[k] = RoundStochastically(values[k], random);
  }
}

// No master: bf16 weights that are rounded stochastically.
struct NoMaster {
  uint16_t* w;  // [n]
  RngKey key;
  ElementNumbers numbers;

  template <int kSize>
  __device__ void Load(int64_t i, float (&values)[kSize]) const {
    WidenHalves(w + i, values);
  }
  template <int kSize>
  __device__ void Store(int64_t i, const float (&values)[kSize]) const {
    uint16_t rounded[kSize];
    RoundNeighbours(key, numbers(i), 0, values, rounded);
    StoreHalves(w + i, rounded);
  }
};

}  // namespace delink::cuda
