// SwiGLU (ref/swiglu.cc has the formulas). A thread has a pack of a row's gates
// and the matching pack of its ups, F elements after it. There are N F / kWidth
// packs of each.
#pragma once

#include "framework/device/cuda/divisor.cuh"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/cuda/math.cuh"

namespace delink::cuda {

inline constexpr int kSwiGluThreads = 256;

// s = 1 / (1 + exp(-g)) and 1 - s, without overflow or cancellation.
struct Sigmoid {
  float s, rest;

  __device__ explicit Sigmoid(float g) {
    const float e = FastExp(-fabsf(g));  // in [0, 1]
    const float large = FastDivide(1.0F, 1.0F + e);
    const float small = e * large;
    s = g < 0 ? small : large;
    rest = g < 0 ? large : small;
  }
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kSwiGluThreads)
    SwiGluForwardKernel(int64_t packs, int64_t F, Divisor by_row,
                        const T* __restrict__ x, T* __restrict__ y) {
  const int64_t each = F / kWidth;  // packs of a row
  const int64_t step = int64_t{gridDim.x} * kSwiGluThreads;
#pragma unroll 2
  for (int64_t pack = int64_t{blockIdx.x} * kSwiGluThreads + threadIdx.x;
       pack < packs; pack += step) {
    const int64_t n = by_row.Quotient(pack);
    const T* const gates = x + (pack + n * each) * kWidth;
    const auto gate = LoadPack<T, kWidth>(gates);
    const auto up = LoadPack<T, kWidth>(gates + F);
    StorePack(y + pack * kWidth, MakePack<T, kWidth>([&](int i) {
                return gate[i] * Sigmoid(gate[i]).s * up[i];
              }));
  }
}

// dx may be x: a thread writes only elements that it alone has read.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kSwiGluThreads)
    SwiGluBackwardKernel(int64_t packs, int64_t F, Divisor by_row,
                         const T* __restrict__ dy, const T* x, T* dx) {
  const int64_t each = F / kWidth;
  const int64_t step = int64_t{gridDim.x} * kSwiGluThreads;
  for (int64_t pack = int64_t{blockIdx.x} * kSwiGluThreads + threadIdx.x;
       pack < packs; pack += step) {
    const int64_t n = by_row.Quotient(pack);
    const int64_t at = (pack + n * each) * kWidth;
    const auto gate = LoadPack<T, kWidth>(x + at);
    const auto up = LoadPack<T, kWidth>(x + at + F);
    const auto d = LoadPack<T, kWidth>(dy + pack * kWidth);
    float dgate[kWidth], dup[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const Sigmoid at_gate(gate[i]);
      const float ds = d[i] * at_gate.s;
      dup[i] = ds * gate[i];
      dgate[i] = ds * up[i] * (1.0F + gate[i] * at_gate.rest);
    }
    StorePack(dx + at, MakePack<T, kWidth>([&](int i) { return dgate[i]; }));
    StorePack(dx + at + F, MakePack<T, kWidth>([&](int i) { return dup[i]; }));
  }
}

}  // namespace delink::cuda
