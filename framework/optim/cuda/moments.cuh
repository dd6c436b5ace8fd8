// How AdamW's moments are stored: Load and Store of kSize neighbours, 1, or 4
// at aligned addresses. adamw_block8.cuh has 8-bit moments, by whole blocks.
#pragma once

#include "framework/optim/cuda/masters.cuh"

namespace delink::cuda {

struct ExactMoments {
  float* m;  // [n]
  float* v;  // [n]

  template <int kSize>
  __device__ void Load(int64_t i, float (&ms)[kSize],
                       float (&vs)[kSize]) const {
    LoadFloats(m + i, ms);
    LoadFloats(v + i, vs);
  }
  template <int kSize>
  __device__ void Store(int64_t i, const float (&ms)[kSize],
                        const float (&vs)[kSize]) const {
    StoreFloats(m + i, ms);
    StoreFloats(v + i, vs);
  }
};

// Rounded stochastically.
struct HalfMoments {
  uint16_t* m;  // [n] bf16
  uint16_t* v;  // [n] bf16
  RngKey key;
  ElementNumbers numbers;

  template <int kSize>
  __device__ void Load(int64_t i, float (&ms)[kSize],
                       float (&vs)[kSize]) const {
    WidenHalves(m + i, ms);
    WidenHalves(v + i, vs);
  }
  template <int kSize>
  __device__ void Store(int64_t i, const float (&ms)[kSize],
                        const float (&vs)[kSize]) const {
    uint16_t rounded[kSize];
    const int64_t number = numbers(i);
    RoundNeighbours(key, number, 1, ms, rounded);
    StoreHalves(m + i, rounded);
    RoundNeighbours(key, number, 2, vs, rounded);
    StoreHalves(v + i, rounded);
  }
};

}  // namespace delink::cuda
