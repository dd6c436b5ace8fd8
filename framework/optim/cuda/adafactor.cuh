// Adafactor: sums over rows and columns, and the update, with the bits of
// framework/optim/cpu/adafactor.cc.
//
// 16 threads compute the sum of a row (or of a run of a vector): element j is
// added to lane j mod 16, in order; then lanes 8 apart are added, and these
// eight in order. One thread computes the sum of a column over kColumnRun rows.
#pragma once

#include "framework/device/cuda/ordered_sum.cuh"
#include "framework/optim/cuda/elementwise.cuh"
#include "framework/optim/matrix_arguments.h"

namespace delink::cuda {

inline constexpr int kSumLanes = 16;
inline constexpr int kSumThreads = 128;
inline constexpr int kRowThreads = 256;

// The arguments of a step that the host knows.
struct AdafactorPlan {
  AdafactorArgs args;
  int64_t sums;  // args.sums()
  int64_t rows;  // of the whole parameter
  int64_t columns;
  float rest;           // update^-0.8
  float floor;          // eps^2
  double least_rate;    // 1 / sqrt(update)
  double root_of_size;  // of the whole parameter's elements
};

__device__ inline Gradient GradientOf(const AdafactorArgs& a) {
  return {a.params.g, a.params.bf16_g};
}

// The sum of value(j) for j in [begin, end), for each group of 16 threads of a
// warp. All lanes of the warp must call; each gets its group's sum.
template <typename Value>
__device__ double LaneSum(int64_t begin, int64_t end, Value value) {
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  double sum = 0.0;
#pragma unroll 4
  for (int64_t j = begin + lane; j < end; j += kSumLanes) sum += value(j);
  sum += __shfl_xor_sync(kFullWarp, sum, kSumLanes / 2);
  double total = 0.0;
  for (int i = 0; i < kSumLanes / 2; ++i) {
    total += __shfl_sync(kFullWarp, sum, i, kSumLanes);
  }
  return total;
}

// A block is kRowThreads columns of one run of rows.
__global__ void __launch_bounds__(kRowThreads)
    ColumnRunsKernel(ColumnSquaresArgs a) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  const int64_t first = int64_t{blockIdx.y} * kColumnRun;
  const int64_t end = first + kColumnRun < a.rows ? first + kColumnRun : a.rows;
  const Gradient g = {a.g, a.bf16_g};
  const GradientScale clip(*a.control);
  double sum = 0.0;
#pragma unroll 8
  for (int64_t row = first; row < end; ++row) {
    const double value = clip(g[row * a.columns + column]);
    sum += value * value;
  }
  a.partial[blockIdx.y * a.columns + column] = sum;
}

// One thread a column.
__global__ void __launch_bounds__(kRowThreads)
    ColumnSumsKernel(ColumnSquaresArgs a, int64_t runs) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  double sum = a.accumulate ? a.sums[column] : 0.0;
  for (int64_t run = 0; run < runs; ++run) {
    sum += a.partial[run * a.columns + column];
  }
  a.sums[column] = sum;
}

// old + rest (mean - old), where mean is that of `count` squares with this sum.
__device__ inline float Blend(float old, double sum, int64_t count,
                              float rest) {
  const float mean =
      static_cast<float>(__ddiv_rn(sum, static_cast<double>(count)));
  return __fadd_rn(old, __fmul_rn(rest, __fsub_rn(mean, old)));
}

// One thread a row, then one a column.
__global__ void __launch_bounds__(kRowThreads)
    FactorsKernel(AdafactorPlan plan) {
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < a.rows) {
    float& r = static_cast<float*>(a.row)[i];
    r = Blend(r, a.row_sums[i], plan.columns, plan.rest);
  } else if (i < a.rows + a.columns) {
    const int64_t j = i - a.rows;
    float& c = static_cast<float*>(a.column)[j];
    c = Blend(c, a.column_sums[j], plan.rows, plan.rest);
  }
}

// One warp; both halves do the same.
__global__ void __launch_bounds__(kWarp) MeanKernel(AdafactorPlan plan) {
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  const bool has_rows = a.rows == plan.rows;
  const float* const factors =
      static_cast<const float*>(has_rows ? a.row : a.column);
  const int64_t count = has_rows ? a.rows : a.columns;
  const double sum =
      LaneSum(0, count, [&](int64_t i) { return double{factors[i]}; });
  if (threadIdx.x == 0) *a.mean = __ddiv_rn(sum, static_cast<double>(count));
}

// u for the second moment v.
__device__ inline float Scaled(float g, float v, float floor) {
  return __fdiv_rn(g, __fsqrt_rn(v < floor ? floor : v));
}
// r_i over the mean of all.
__device__ inline float OfRow(const AdafactorPlan& plan, int64_t i) {
  const float mean = static_cast<float>(*plan.args.mean);
  return __fdiv_rn(static_cast<const float*>(plan.args.row)[i],
                   mean < plan.floor ? plan.floor : mean);
}

// 16 threads a row.
__global__ void __launch_bounds__(kSumThreads)
    MatrixSumsKernel(AdafactorPlan plan) {
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  const int64_t i =
      (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kSumLanes;
  const int64_t row = i < a.rows ? i : a.rows - 1;
  const Gradient g = GradientOf(a);
  const GradientScale clip(*a.params.control);
  const int64_t first = row * a.columns;
  const float* const column = static_cast<const float*>(a.column);
  const float of_row = OfRow(plan, row);
  const double sum = LaneSum(0, a.columns, [&](int64_t j) {
    const double u =
        Scaled(clip(g[first + j]), __fmul_rn(of_row, column[j]), plan.floor);
    return u * u;
  });
  if (threadIdx.x % kSumLanes == 0 && i < a.rows) a.u_sums[i] = sum;
}

// 16 threads a run of kAdafactorRun elements.
__global__ void __launch_bounds__(kSumThreads)
    VectorSumsKernel(AdafactorPlan plan) {
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  const int64_t run =
      (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kSumLanes;
  const int64_t begin = run * kAdafactorRun;
  const int64_t end =
      begin + kAdafactorRun < a.rows ? begin + kAdafactorRun : a.rows;
  const Gradient g = GradientOf(a);
  const GradientScale clip(*a.params.control);
  float* const v = static_cast<float*>(a.v);
  const double sum = LaneSum(begin, end, [&](int64_t j) {
    const float old = v[j], gj = clip(g[j]);
    v[j] =
        __fadd_rn(old, __fmul_rn(plan.rest, __fsub_rn(__fmul_rn(gj, gj), old)));
    const double u = Scaled(gj, v[j], plan.floor);
    return u * u;
  });
  if (threadIdx.x % kSumLanes == 0 && run < plan.sums) a.u_sums[run] = sum;
}

// One warp.
__global__ void __launch_bounds__(kWarp) TotalsKernel(AdafactorPlan plan) {
  __shared__ double stage[kOrderedStage];
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  const double u = SumInOrder(0.0, a.u_sums, plan.sums, stage);
  const double p =
      a.relative ? SumInOrder(0.0, a.p_sums, a.p_count, stage) : 0.0;
  if (threadIdx.x != 0) return;
  a.totals[0] += u;
  a.totals[1] += p;
}

// One warp. Computes the step size.
__global__ void __launch_bounds__(kWarp) StepSizeKernel(AdafactorPlan plan) {
  __shared__ double stage[kOrderedStage];
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  double u = 0.0, p = 0.0;
  if (a.totals != nullptr) {
    u = a.totals[0];
    p = a.totals[1];
  } else {
    u = SumInOrder(0.0, a.u_sums, plan.sums, stage);
    if (a.relative) p = SumInOrder(0.0, a.p_sums, a.p_count, stage);
  }
  if (threadIdx.x != 0) return;
  double alpha = RateOf(*a.params.control, a.params.lr_scale);
  if (a.relative) {
    const double root = sqrt(p) / plan.root_of_size;
    alpha = __dmul_rn(root < 1e-3 ? 1e-3 : root,
                      plan.least_rate < alpha ? plan.least_rate : alpha);
  }
  const double root = sqrt(u) / plan.root_of_size;
  *a.step = alpha / (root < 1.0 ? 1.0 : root);
}

struct AdafactorStep {
  float shrink, step;

  __device__ explicit AdafactorStep(const AdafactorArgs& a)
      : shrink(ShrinkOf(RateOf(*a.params.control, a.params.lr_scale),
                        a.params.decay)),
        step(static_cast<float>(-*a.step)) {}
  __device__ float operator()(float p, float u) const {
    return __fadd_rn(__fmul_rn(p, shrink), __fmul_rn(step, u));
  }
};

// One block a row; a thread takes kSize neighbours at a time, and kSize divides
// the columns.
template <int kSize, typename Master>
__global__ void __launch_bounds__(kRowThreads)
    MatrixStepKernel(AdafactorPlan plan, Master master) {
  const AdafactorArgs& a = plan.args;
  if (a.params.control->skip != 0) return;
  const AdafactorStep update(a);
  const int64_t first = int64_t{blockIdx.x} * a.columns;
  const float of_row = OfRow(plan, blockIdx.x);
  const Gradient g = GradientOf(a);
  const GradientScale clip(*a.params.control);
  const float* const column = static_cast<const float*>(a.column);
  for (int64_t j = int64_t{threadIdx.x} * kSize; j < a.columns;
       j += int64_t{blockDim.x} * kSize) {
    float ps[kSize], gs[kSize], cs[kSize];
    master.Load(first + j, ps);
    g.Load(first + j, gs);
    LoadFloats(column + j, cs);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      ps[k] = update(ps[k],
                     Scaled(clip(gs[k]), __fmul_rn(of_row, cs[k]), plan.floor));
    }
    master.Store(first + j, ps);
  }
}

template <typename Master>
struct VectorStepRule {
  AdafactorPlan plan;
  Master master;

  __device__ bool Skips() const { return plan.args.params.control->skip != 0; }
  template <int kSize>
  __device__ void Run(int64_t i) const {
    const AdafactorStep update(plan.args);
    const GradientScale clip(*plan.args.params.control);
    float ps[kSize], gs[kSize], vs[kSize];
    master.Load(i, ps);
    GradientOf(plan.args).Load(i, gs);
    LoadFloats(static_cast<const float*>(plan.args.v) + i, vs);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      ps[k] = update(ps[k], Scaled(clip(gs[k]), vs[k], plan.floor));
    }
    master.Store(i, ps);
  }
};

}  // namespace delink::cuda
