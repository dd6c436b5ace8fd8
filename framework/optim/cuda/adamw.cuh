// AdamW: bound by memory, so one pass over master, g, m and v, a thread four
// elements.
//
// The operations are those of framework/optim/cpu/adamw.cc, in its order and
// each rounded on its own (no contraction), divisions and roots as IEEE 754
// has them: an update has the same bits on both devices.
#pragma once

#include "framework/device/cuda/floats.cuh"
#include "framework/optim/arguments.h"

namespace delink::cuda {

inline constexpr int kAdamWThreads = 256;

// What the host knows of a step. The rest is in UpdateControl.
struct AdamWPlan {
  const float* g;  // [n]
  float* m;        // [n]
  float* v;        // [n]
  int64_t n;
  const UpdateControl* control;
  double decay;
  double rest1_of_t;  // 1 - beta1^t
  float beta1, rest1;
  float beta2, rest2;
  float root2;  // sqrt(1 - beta2^t)
  float eps;
};

// What it reads of the control, as the CPU makes it.
struct AdamWStep {
  float scale, shrink, step;
};
__device__ inline AdamWStep StepOf(const AdamWPlan& a) {
  const double lr = a.control->lr;
  return {static_cast<float>(a.control->clip_factor),
          static_cast<float>(__dsub_rn(1.0, __dmul_rn(lr, a.decay))),
          static_cast<float>(-(lr / a.rest1_of_t))};
}

__device__ inline void UpdateElement(const AdamWPlan& a, const AdamWStep& s,
                                     float& p, float g, float& m, float& v) {
  g = __fmul_rn(g, s.scale);
  m = __fadd_rn(__fmul_rn(m, a.beta1), __fmul_rn(g, a.rest1));
  v = __fadd_rn(__fmul_rn(v, a.beta2), __fmul_rn(__fmul_rn(a.rest2, g), g));
  const float root = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), a.root2), a.eps);
  p = __fadd_rn(__fmul_rn(p, s.shrink), __fdiv_rn(__fmul_rn(s.step, m), root));
}

// kSize elements from i on: 1, or 4 that are aligned.
template <int kSize, typename Master>
__device__ void UpdateElements(const AdamWPlan& a, const AdamWStep& s,
                               const Master& master, int64_t i) {
  float p[kSize], g[kSize], m[kSize], v[kSize];
  master.Load(i, p);
  LoadFloats(a.g + i, g);
  LoadFloats(a.m + i, m);
  LoadFloats(a.v + i, v);
#pragma unroll
  for (int k = 0; k < kSize; ++k) UpdateElement(a, s, p[k], g[k], m[k], v[k]);
  master.Store(i, p);
  StoreFloats(a.m + i, m);
  StoreFloats(a.v + i, v);
}

// Master is one of masters.cuh. The last elements, fewer than kSize, are the
// next thread's.
template <int kSize, typename Master>
__global__ void __launch_bounds__(kAdamWThreads)
    AdamWKernel(AdamWPlan a, Master master) {
  if (a.control->skip != 0) return;
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize;
  if (i >= a.n) return;
  const AdamWStep step = StepOf(a);
  if (i + kSize <= a.n) {
    UpdateElements<kSize>(a, step, master, i);
  } else {
    for (int64_t j = i; j < a.n; ++j) UpdateElements<1>(a, step, master, j);
  }
}

}  // namespace delink::cuda
