// Muon's elementwise passes over memory (elementwise.cuh). The matrix that is
// made orthogonal is stored as float or, X = uint16_t, as the bits of bf16.
#pragma once

#include "framework/device/cuda/ordered_sum.cuh"
#include "framework/optim/cuda/elementwise.cuh"
#include "framework/optim/matrix_arguments.h"

namespace delink::cuda {

template <int kSize>
__device__ void LoadX(const float* from, float (&to)[kSize]) {
  LoadFloats(from, to);
}
template <int kSize>
__device__ void LoadX(const uint16_t* from, float (&to)[kSize]) {
  WidenHalves(from, to);
}
template <int kSize>
__device__ void StoreX(float* to, const float (&from)[kSize]) {
  StoreFloats(to, from);
}
template <int kSize>
__device__ void StoreX(uint16_t* to, const float (&from)[kSize]) {
  StoreRounded(to, from);
}

struct MomentumRule {
  Gradient g;
  float* m;
  float* u;
  const UpdateControl* control;
  float momentum, rest;
  bool nesterov;

  __device__ bool Skips() const { return control->skip != 0 && u == g.g; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    if (control->skip != 0) {
      const float zeros[kSize] = {};
      return StoreFloats(u + i, zeros);
    }
    const GradientScale clip(*control);
    float gs[kSize], ms[kSize];
    g.Load(i, gs);
    LoadFloats(m + i, ms);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const float part = __fmul_rn(rest, clip(gs[k]));
      ms[k] = __fadd_rn(__fmul_rn(momentum, ms[k]), part);
      gs[k] = nesterov ? __fadd_rn(part, __fmul_rn(momentum, ms[k])) : ms[k];
    }
    StoreFloats(u + i, gs);
    StoreFloats(m + i, ms);
  }
};

// One warp.
__global__ void __launch_bounds__(kWarp)
    NormalizeScaleKernel(MuonNormalizeArgs a) {
  __shared__ double stage[kOrderedStage];
  const double squares = SumInOrder(0.0, a.sums, a.count, stage);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(squares);
  *a.scale = 1.0 / (norm < 1e-7 ? 1e-7 : norm);
}

template <typename X>
struct NormalizeRule {
  const float* u;
  X* x;
  const double* scale;

  __device__ bool Skips() const { return false; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    const float factor = static_cast<float>(*scale);
    float values[kSize];
    LoadFloats(u + i, values);
#pragma unroll
    for (int k = 0; k < kSize; ++k) values[k] = __fmul_rn(values[k], factor);
    StoreX(x + i, values);
  }
};

template <typename X>
struct ScaleAddRule {
  const X* x;
  X* y;
  float a, b;

  __device__ bool Skips() const { return false; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    float xs[kSize], ys[kSize];
    LoadX(x + i, xs);
    LoadX(y + i, ys);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      ys[k] = __fadd_rn(__fmul_rn(a, xs[k]), __fmul_rn(b, ys[k]));
    }
    StoreX(y + i, ys);
  }
};

template <typename Master, typename X>
struct MuonStepRule {
  Master master;
  const X* x;
  const UpdateControl* control;
  double lr_scale, decay, factor;

  __device__ bool Skips() const { return control->skip != 0; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    const double lr = RateOf(*control, lr_scale);
    const float shrink = ShrinkOf(lr, decay);
    const float step = static_cast<float>(-__dmul_rn(lr, factor));
    float ps[kSize], xs[kSize];
    master.Load(i, ps);
    LoadX(x + i, xs);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      ps[k] = __fadd_rn(__fmul_rn(ps[k], shrink), __fmul_rn(step, xs[k]));
    }
    master.Store(i, ps);
  }
};

}  // namespace delink::cuda
