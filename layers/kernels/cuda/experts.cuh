// Biases and activations of rows of experts (ref/experts.cc has the formulas;
// grouped.cuh has their products). Offsets are read on the device: a launch is
// for as many rows as there may be, and blocks without rows end at once. Simple
// and correct.
#pragma once

#include <cmath>

#include "framework/device/cuda/reduce.cuh"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/cuda/pointwise.cuh"
#include "layers/kernels/cuda/swiglu.cuh"
#include "layers/kernels/expert_arguments.h"

namespace delink::cuda {

inline constexpr int kRowThreadsOfExperts = 128;

// Blocks have rows in turn.
template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    GatherRowsKernel(GatherRowsArgs s) {
  const int64_t rows = s.offsets != nullptr ? s.offsets[s.E] : s.cap;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t pair = s.pairs[row];
    const T* const x = static_cast<const T*>(s.x) + pair / s.k * s.D;
    T* const y = static_cast<T*>(s.y) + row * s.D;
    for (int64_t d = threadIdx.x; d < s.D; d += blockDim.x) {
      y[d] = pair < 0 ? FromFloat<T>(0.0F) : x[d];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    CombineRowsKernel(CombineRowsArgs s) {
  for (int64_t n = blockIdx.x; n < s.N; n += gridDim.x) {
    for (int64_t d = threadIdx.x; d < s.D; d += blockDim.x) {
      float sum = 0;
      for (int64_t j = 0; j < s.k; ++j) {
        const int64_t row = s.rows[n * s.k + j];
        if (row >= 0) sum += ToFloat(static_cast<const T*>(s.x)[row * s.D + d]);
      }
      static_cast<T*>(s.y)[n * s.D + d] = FromFloat<T>(sum);
    }
  }
}

template <typename Args>
__device__ inline float GateOf(const Args& s, int64_t row) {
  if (s.gates == nullptr) return 1.0F;
  return static_cast<const float*>(s.gates)[s.pairs[row]];
}

// Blocks along y have experts.
template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    GroupedBiasKernel(GroupedBiasArgs s) {
  const int64_t e = blockIdx.y;
  const T* const b = static_cast<const T*>(s.b) + e * s.D;
  for (int64_t row = s.offsets[e] + blockIdx.x; row < s.offsets[e + 1];
       row += gridDim.x) {
    const float gate = GateOf(s, row);
    T* const y = static_cast<T*>(s.y) + row * s.D;
    for (int64_t d = threadIdx.x; d < s.D; d += blockDim.x) {
      y[d] = FromFloat<T>(ToFloat(y[d]) + gate * ToFloat(b[d]));
    }
  }
}

// A thread has a column of an expert.
template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    GroupedBiasGradKernel(GroupedBiasGradArgs s) {
  const int64_t e = blockIdx.y;
  const int64_t d = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (d >= s.D) return;
  float* const db = static_cast<float*>(s.db) + e * s.D + d;
  float sum = s.accumulate ? *db : 0.0F;
  for (int64_t row = s.offsets[e]; row < s.offsets[e + 1]; ++row) {
    sum += GateOf(s, row) * ToFloat(static_cast<const T*>(s.dy)[row * s.D + d]);
  }
  *db = sum;
}

// Blocks along y have experts.
template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    GroupedBiasGatesKernel(GroupedBiasGatesArgs s) {
  __shared__ float partial[kWarp];
  const int64_t e = blockIdx.y;
  const T* const b = static_cast<const T*>(s.b) + e * s.D;
  for (int64_t row = s.offsets[e] + blockIdx.x; row < s.offsets[e + 1];
       row += gridDim.x) {
    const T* const dy = static_cast<const T*>(s.dy) + row * s.D;
    float sum = 0;
    for (int64_t d = threadIdx.x; d < s.D; d += blockDim.x) {
      sum += ToFloat(dy[d]) * ToFloat(b[d]);
    }
    sum = BlockSum(sum, partial);
    if (threadIdx.x == 0) static_cast<float*>(s.dgates)[s.pairs[row]] = sum;
  }
}

// The GELU of a value, and its derivative.
__device__ inline float ExpertGelu(ExpertActivation activation, float x) {
  return activation == ExpertActivation::kGeluErf ? ErfGelu{}({x})
                                                  : TanhGelu{}({x});
}
__device__ inline float ExpertGeluSlope(ExpertActivation activation, float x) {
  return activation == ExpertActivation::kGeluErf
             ? ErfGeluBackward{}({1.0F, x})
             : TanhGeluBackward{}({1.0F, x});
}

template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    ExpertActForwardKernel(ExpertActForwardArgs s) {
  const bool gated = s.activation == ExpertActivation::kSwiGlu;
  for (int64_t row = blockIdx.x; row < s.offsets[s.E]; row += gridDim.x) {
    const float by = static_cast<const float*>(s.gates)[s.pairs[row]];
    const T* const x = static_cast<const T*>(s.x) + row * s.F * (gated ? 2 : 1);
    T* const y = static_cast<T*>(s.y) + row * s.F;
    for (int64_t f = threadIdx.x; f < s.F; f += blockDim.x) {
      const float g = ToFloat(x[f]);
      const float act = gated ? g * Sigmoid(g).s * ToFloat(x[s.F + f])
                              : ExpertGelu(s.activation, g);
      y[f] = FromFloat<T>(by * act);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreadsOfExperts)
    ExpertActBackwardKernel(ExpertActBackwardArgs s) {
  __shared__ float partial[kWarp];
  const bool gated = s.activation == ExpertActivation::kSwiGlu;
  for (int64_t row = blockIdx.x; row < s.offsets[s.E]; row += gridDim.x) {
    const int64_t pair = s.pairs[row];
    const float by = static_cast<const float*>(s.gates)[pair];
    const int64_t at = row * s.F * (gated ? 2 : 1);
    const T* const x = static_cast<const T*>(s.x) + at;
    T* const dx = static_cast<T*>(s.dx) + at;
    const T* const dy = static_cast<const T*>(s.dy) + row * s.F;
    float dgate = 0;
    for (int64_t f = threadIdx.x; f < s.F; f += blockDim.x) {
      const float g = ToFloat(x[f]), d = ToFloat(dy[f]);
      if (!gated) {
        dgate += d * ExpertGelu(s.activation, g);
        dx[f] = FromFloat<T>(by * d * ExpertGeluSlope(s.activation, g));
        continue;
      }
      const float up = ToFloat(x[s.F + f]);
      const Sigmoid at_gate(g);
      const float silu = g * at_gate.s;
      dgate += d * silu * up;
      dx[f] = FromFloat<T>(by * d * up * at_gate.s * (1 + g * at_gate.rest));
      dx[s.F + f] = FromFloat<T>(by * d * silu);
    }
    dgate = BlockSum(dgate, partial);
    if (threadIdx.x == 0) static_cast<float*>(s.dgates)[pair] = dgate;
  }
}

}  // namespace delink::cuda
