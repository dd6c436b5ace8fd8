// AdamW: bound by memory, so one pass over master, g, m and v, four elements a
// thread.
//
// The operations are those of framework/optim/cpu/adamw.h, in the same order,
// each rounded by itself (no contraction), with IEEE 754 divisions and roots:
// an update has the same bits on both devices.
#pragma once

#include "framework/optim/cuda/elementwise.cuh"
#include "framework/optim/cuda/moments.cuh"

namespace delink::cuda {

// The arguments of a step that the host knows; UpdateControl has the others.
struct AdamWPlan {
  Gradient g;  // [n]
  int64_t n;
  const UpdateControl* control;
  double lr_scale;
  double decay;
  double rest1_of_t;  // 1 - beta1^t
  float beta1, rest1;
  float beta2, rest2;
  float root2;  // sqrt(1 - beta2^t)
  float eps;
};

// The step from plan and control, as on the CPU.
struct AdamWStep {
  GradientScale clip;
  float shrink, step;

  __device__ explicit AdamWStep(const AdamWPlan& a)
      : clip(*a.control),
        shrink(ShrinkOf(RateOf(*a.control, a.lr_scale), a.decay)),
        step(static_cast<float>(
            -(RateOf(*a.control, a.lr_scale) / a.rest1_of_t))) {}

  __device__ void Average(const AdamWPlan& a, float g, float& m,
                          float& v) const {
    g = clip(g);
    m = __fadd_rn(__fmul_rn(m, a.beta1), __fmul_rn(g, a.rest1));
    v = __fadd_rn(__fmul_rn(v, a.beta2), __fmul_rn(__fmul_rn(a.rest2, g), g));
  }
  __device__ void Move(const AdamWPlan& a, float& p, float m, float v) const {
    const float root = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), a.root2), a.eps);
    p = __fadd_rn(__fmul_rn(p, shrink), __fdiv_rn(__fmul_rn(step, m), root));
  }
};

// Master is one of masters.cuh, Moments one of moments.cuh.
template <typename Master, typename Moments>
struct AdamWRule {
  AdamWPlan plan;
  Master master;
  Moments moments;

  __device__ bool Skips() const { return plan.control->skip != 0; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    const AdamWStep step(plan);
    float p[kSize], g[kSize], m[kSize], v[kSize];
    master.Load(i, p);
    plan.g.Load(i, g);
    moments.Load(i, m, v);
#pragma unroll
    for (int k = 0; k < kSize; ++k) step.Average(plan, g[k], m[k], v[k]);
    // Before the divisions, which call a function: this takes fewer registers.
    moments.Store(i, m, v);
#pragma unroll
    for (int k = 0; k < kSize; ++k) step.Move(plan, p[k], m[k], v[k]);
    master.Store(i, p);
  }
};

}  // namespace delink::cuda
