// Elementwise updates: bound by memory, so one pass over all planes. A thread
// takes one element, or four that are aligned.
//
// A Rule has Skips(), and Run<kSize>(i) for elements [i, i + kSize). The
// operations are those of framework/optim/cpu, in the same order, each rounded
// by itself: an update has the same bits on both devices.
#pragma once

#include <limits>

#include "framework/device/cuda/floats.cuh"
#include "framework/optim/arguments.h"
#include "framework/optim/cuda/masters.cuh"

namespace delink::cuda {

inline constexpr int kElementThreads = 256;

// g' of arguments.h.
struct GradientScale {
  float scale, limit;

  __device__ explicit GradientScale(const UpdateControl& control)
      : scale(static_cast<float>(control.clip_factor)),
        limit(control.clip_value > 0 ? static_cast<float>(control.clip_value)
                                     : std::numeric_limits<float>::infinity()) {
  }
  __device__ float operator()(float g) const {
    const float scaled = __fmul_rn(g, scale);
    const float low = scaled < -limit ? -limit : scaled;
    return low > limit ? limit : low;
  }
};

__device__ inline double RateOf(const UpdateControl& control, double lr_scale) {
  return __dmul_rn(control.lr, lr_scale);
}
__device__ inline float ShrinkOf(double lr, double decay) {
  return static_cast<float>(__dsub_rn(1.0, __dmul_rn(lr, decay)));
}

// The last thread takes the last elements, which may be fewer than kSize.
template <int kSize, typename Rule>
__global__ void __launch_bounds__(kElementThreads)
    ElementKernel(Rule rule, int64_t n) {
  if (rule.Skips()) return;
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize;
  if (i >= n) return;
  if (i + kSize <= n) {
    rule.template Run<kSize>(i);
  } else {
    for (int64_t j = i; j < n; ++j) rule.template Run<1>(j);
  }
}

template <typename Master>
struct SgdRule {
  Master master;
  Gradient g;
  float* m;  // may be null
  const UpdateControl* control;
  double lr_scale;
  float momentum, decay;
  bool nesterov;

  __device__ bool Skips() const { return control->skip != 0; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    const GradientScale clip(*control);
    const float step = static_cast<float>(-RateOf(*control, lr_scale));
    float ps[kSize], gs[kSize], ms[kSize] = {};
    master.Load(i, ps);
    g.Load(i, gs);
    if (m != nullptr) LoadFloats(m + i, ms);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const float gi = __fadd_rn(clip(gs[k]), __fmul_rn(decay, ps[k]));
      float direction = gi;
      if (m != nullptr) {
        ms[k] = __fadd_rn(__fmul_rn(momentum, ms[k]), gi);
        direction =
            nesterov ? __fadd_rn(gi, __fmul_rn(momentum, ms[k])) : ms[k];
      }
      ps[k] = __fadd_rn(ps[k], __fmul_rn(step, direction));
    }
    master.Store(i, ps);
    if (m != nullptr) StoreFloats(m + i, ms);
  }
};

template <typename Master>
struct LionRule {
  Master master;
  Gradient g;
  float* m;
  const UpdateControl* control;
  double lr_scale, decay;
  float beta1, rest1, beta2, rest2;

  __device__ bool Skips() const { return control->skip != 0; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    const GradientScale clip(*control);
    const double lr = RateOf(*control, lr_scale);
    const float shrink = ShrinkOf(lr, decay);
    const float step = static_cast<float>(-lr);
    float ps[kSize], gs[kSize], ms[kSize];
    master.Load(i, ps);
    g.Load(i, gs);
    LoadFloats(m + i, ms);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const float gi = clip(gs[k]);
      const float way =
          __fadd_rn(__fmul_rn(ms[k], beta1), __fmul_rn(gi, rest1));
      ms[k] = __fadd_rn(__fmul_rn(ms[k], beta2), __fmul_rn(gi, rest2));
      const float size = way > 0.0F ? step : way < 0.0F ? -step : 0.0F;
      ps[k] = __fadd_rn(__fmul_rn(ps[k], shrink), size);
    }
    master.Store(i, ps);
    StoreFloats(m + i, ms);
  }
};

}  // namespace delink::cuda
