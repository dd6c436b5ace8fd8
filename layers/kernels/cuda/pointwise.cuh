// Elementwise functions: GELU and its derivative (ref/pointwise.cc has the
// formulas), sums. A thread has kUnroll packs, a block's width apart, and reads
// them all before it writes the first, so an output may be an input.
#pragma once

#include "framework/device/cuda/floats.cuh"
#include "layers/kernels/arguments.h"
#include "layers/kernels/cuda/math.cuh"

namespace delink::cuda {

inline constexpr int kPointwiseThreads = 256;
inline constexpr int kUnroll = 4;

// With e = exp(-2u), u = sqrt(2/pi) (x + 0.044715 x^3), the tanh form of GELU
// is x / (1 + e).
__device__ inline float TanhExp(float x) {
  return FastExp(x * (-1.5957691F - 0.071354816F * x * x));
}

struct TanhGelu {
  static constexpr int kInputs = 1;
  __device__ float operator()(const float (&x)[1]) const {
    return FastDivide(x[0], 1.0F + TanhExp(x[0]));
  }
};

// dy, x -> dx
struct TanhGeluBackward {
  static constexpr int kInputs = 2;
  __device__ float operator()(const float (&in)[2]) const {
    // Past +-10 the derivative is 0 or 1 in f32; nothing may overflow there.
    // Comparisons, not fminf, since they keep NaN.
    float x = in[1];
    x = x > 10.0F ? 10.0F : x;
    x = x < -10.0F ? -10.0F : x;
    const float e = TanhExp(x);
    const float gate = FastDivide(1.0F, 1.0F + e);
    const float two_du = 1.5957691F + 0.21406445F * x * x;
    // 1 - gate, without cancellation, is e * gate.
    return in[0] * (gate + x * two_du * gate * (e * gate));
  }
};

__device__ inline float NormalCdf(float x) {
  return 0.5F * erfcf(x * -0.70710678F);
}

struct ErfGelu {
  static constexpr int kInputs = 1;
  __device__ float operator()(const float (&x)[1]) const {
    return x[0] * NormalCdf(x[0]);
  }
};

struct ErfGeluBackward {
  static constexpr int kInputs = 2;
  __device__ float operator()(const float (&in)[2]) const {
    const float x = in[1];
    const float density = 0.39894228F * FastExp(-0.5F * x * x);
    return in[0] * (NormalCdf(x) + x * density);
  }
};

struct Sum {
  static constexpr int kInputs = 2;
  __device__ float operator()(const float (&in)[2]) const {
    return in[0] + in[1];
  }
};

// The inputs of a function.
template <typename T, int kInputs>
struct Inputs {
  const T* x[kInputs];
};

// y[i] = f(x[0][i], ...) for i < count; the first `packs` packs by 16 bytes.
template <typename F, typename T>
__global__ void __launch_bounds__(kPointwiseThreads)
    MapKernel(int64_t count, int64_t packs, Inputs<T, F::kInputs> inputs,
              T* y) {
  constexpr int kInputs = F::kInputs, kSize = Pack<T>::kSize;
  const F f = {};
  const int64_t block = int64_t{kPointwiseThreads} * kUnroll;
  for (int64_t first = blockIdx.x * block + threadIdx.x; first < packs;
       first += gridDim.x * block) {
    Pack<T> in[kUnroll][kInputs];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const int64_t pack = first + k * kPointwiseThreads;
#pragma unroll
      for (int j = 0; j < kInputs; ++j) {
        if (pack < packs) in[k][j] = LoadPack(inputs.x[j] + pack * kSize);
      }
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const int64_t pack = first + k * kPointwiseThreads;
      if (pack >= packs) break;
      StorePack(y + pack * kSize, MakePack<T>([&](int i) {
                  float x[kInputs];
#pragma unroll
                  for (int j = 0; j < kInputs; ++j) x[j] = in[k][j][i];
                  return f(x);
                }));
    }
  }
  const int64_t thread = int64_t{blockIdx.x} * kPointwiseThreads + threadIdx.x;
  for (int64_t i = packs * kSize + thread; i < count;
       i += int64_t{gridDim.x} * kPointwiseThreads) {
    float x[kInputs];
#pragma unroll
    for (int j = 0; j < kInputs; ++j) x[j] = ToFloat(inputs.x[j][i]);
    y[i] = FromFloat<T>(f(x));
  }
}

template <typename T>
__global__ void __launch_bounds__(kPointwiseThreads) WidenKernel(WidenArgs s) {
  const int64_t i = int64_t{blockIdx.x} * kPointwiseThreads + threadIdx.x;
  if (i >= s.count) return;
  static_cast<float*>(s.y)[i] = ToFloat(static_cast<const T*>(s.x)[i]);
}

// y (=|+=) x, rounded to bf16. A thread has kSize neighbouring elements: 1, or
// 8 that are aligned; the last thread may have fewer.
template <int kSize>
__global__ void __launch_bounds__(kPointwiseThreads)
    RoundGradientKernel(RoundGradientArgs s) {
  const int64_t i =
      (int64_t{blockIdx.x} * kPointwiseThreads + threadIdx.x) * kSize;
  if (i >= s.count) return;
  const float* const x = static_cast<const float*>(s.x) + i;
  __nv_bfloat16* const y = static_cast<__nv_bfloat16*>(s.y) + i;
  if (i + kSize <= s.count) {
    float sum[kSize];
    LoadFloats(x, sum);
    StoreGradient(y, sum, s.accumulate);
    return;
  }
  for (int64_t j = 0; j < s.count - i; ++j) {
    float sum[1] = {x[j]};
    StoreGradient(y + j, sum, s.accumulate);
  }
}

}  // namespace delink::cuda
