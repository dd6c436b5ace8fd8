// Layer norm and RMS norm of rows [D], forward and gradient of the input
// (ref/norm.cc has the formulas). A team of threads (rows.cuh) reads its row
// once and keeps it, so the variance is computed from differences from the
// mean, not as a difference of sums. Forward can also add a branch to the
// residual stream, and backward can add the stream's gradient so far. A
// separate addition would take three more passes over memory.
#pragma once

#include "layers/kernels/cuda/math.cuh"
#include "layers/kernels/cuda/rows.cuh"

namespace delink::cuda {

// The least number of blocks that must fit on a multiprocessor, so that enough
// loads are in flight. Backward keeps two rows in registers, and so does
// forward if it adds.
template <typename Team>
inline constexpr int kBackwardBlocks = Team::kThreads < kMaxRowThreads ? 2 : 1;
template <typename Team, bool kAdds = false>
inline constexpr int kForwardBlocks =
    kAdds ? kBackwardBlocks<Team> : kMaxRowThreads / Team::kThreads;

// Row n of an operand, or null.
template <typename T>
__device__ T* RowOrNull(T* rows, int64_t n, int D) {
  return rows != nullptr ? rows + n * D : nullptr;
}

// Normalises x, or, with kAdds, x + add, which it stores in sum_of and may read
// again from there.
template <typename Team, typename T, int kWidth, int kHeld, bool kAdds>
__global__ void __launch_bounds__(Team::kThreads, kForwardBlocks<Team, kAdds>)
    LayerNormForwardKernel(int team_size, int64_t N, int D, float eps,
                           const T* x, const T* add, T* sum_of,
                           const T* __restrict__ w, const T* __restrict__ b,
                           T* __restrict__ y, float* __restrict__ mean,
                           float* __restrict__ rstd) {
  const Team team(team_size);
  // Not FastDivide: an error of the mean would be in all differences from it.
  const float share = 1.0F / static_cast<float>(D);
  team.ForRows(N, [&](int64_t n, bool mine) {
    const Columns<kWidth, kHeld> columns(team, D, mine);
    const Row<T, kWidth, kHeld> row(x + n * D, kAdds ? add + n * D : nullptr,
                                    sum_of + n * D, columns);
    float sum = 0;
    columns.ForEach([&](int k, int d) {
      const auto v = row.At(k, d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum += v[i];
    });
    const float m = team.Sum(sum) * share;
    float square = 0;
    columns.ForEach([&](int k, int d) {
      const auto v = row.At(k, d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) square += (v[i] - m) * (v[i] - m);
    });
    const float r = rsqrtf(team.Sum(square) * share + eps);
    columns.ForEach([&](int k, int d) {
      const auto v = row.At(k, d);
      const auto weight = LoadPack<T, kWidth>(w + d);
      Pack<T, kWidth> bias = {};
      if (b != nullptr) bias = LoadPack<T, kWidth>(b + d);
      StorePack(y + n * D + d, MakePack<T, kWidth>([&](int i) {
                  return (v[i] - m) * r * weight[i] + bias[i];
                }));
    });
    if (mine && rstd != nullptr && team.index() == 0) {
      mean[n] = m;
      rstd[n] = r;
    }
  });
}

// dx may be dy or add: a thread writes only elements that it alone has read.
template <typename Team, typename T, int kWidth, int kHeld>
__global__ void __launch_bounds__(Team::kThreads, kBackwardBlocks<Team>)
    LayerNormBackwardInputKernel(int team_size, int64_t N, int D, const T* dy,
                                 const T* __restrict__ x,
                                 const T* __restrict__ w,
                                 const float* __restrict__ mean,
                                 const float* __restrict__ rstd, const T* add,
                                 T* dx) {
  const Team team(team_size);
  const float count = static_cast<float>(D);
  team.ForRows(N, [&](int64_t n, bool mine) {
    const Columns<kWidth, kHeld> columns(team, D, mine);
    const Row<T, kWidth, kHeld> row_dy(dy + n * D, columns);
    const Row<T, kWidth, kHeld> row_x(x + n * D, columns);
    const float m = mine ? mean[n] : 0;
    const float r = mine ? rstd[n] : 0;
    float sum_g = 0, sum_gx = 0;
    columns.ForEach([&](int k, int d) {
      const auto gradient = row_dy.At(k, d), v = row_x.At(k, d);
      const auto weight = LoadPack<T, kWidth>(w + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float g = gradient[i] * weight[i];
        sum_g += g;
        sum_gx += g * ((v[i] - m) * r);
      }
    });
    const float mean_g = FastDivide(team.Sum(sum_g), count);
    const float mean_gx = FastDivide(team.Sum(sum_gx), count);
    columns.ForEach([&](int k, int d) {
      const auto gradient = row_dy.At(k, d), v = row_x.At(k, d);
      const auto weight = LoadPack<T, kWidth>(w + d);
      Pack<T, kWidth> before = {};
      if (add != nullptr) before = LoadPack<T, kWidth>(add + n * D + d);
      StorePack(dx + n * D + d, MakePack<T, kWidth>([&](int i) {
                  const float g = gradient[i] * weight[i];
                  const float xhat = (v[i] - m) * r;
                  return r * (g - mean_g - xhat * mean_gx) + before[i];
                }));
    });
  });
}

// One row x [D] of an RMS norm, also of a head (qk_norm.cuh): writes y and
// returns rstd. If !mine, it reads and writes nothing. `add` and `sum_of` are
// as for layer norm, or null.
template <int kWidth, int kHeld, typename Team, typename T>
__device__ float RmsForwardRow(const Team& team, int D, bool mine, float eps,
                               const T* x, const T* w, T* y,
                               const T* add = nullptr, T* sum_of = nullptr) {
  const Columns<kWidth, kHeld> columns(team, D, mine);
  const Row<T, kWidth, kHeld> row(x, add, sum_of, columns);
  float square = 0;
  columns.ForEach([&](int k, int d) {
    const auto v = row.At(k, d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) square += v[i] * v[i];
  });
  const float r =
      rsqrtf(FastDivide(team.Sum(square), static_cast<float>(D)) + eps);
  columns.ForEach([&](int k, int d) {
    const auto v = row.At(k, d);
    const auto weight = LoadPack<T, kWidth>(w + d);
    StorePack(y + d,
              MakePack<T, kWidth>([&](int i) { return v[i] * r * weight[i]; }));
  });
  return r;
}

// dx may be dy or add.
template <int kWidth, int kHeld, typename Team, typename T>
__device__ void RmsBackwardRow(const Team& team, int D, bool mine, float rstd,
                               const T* dy, const T* x, const T* w, T* dx,
                               const T* add = nullptr) {
  const Columns<kWidth, kHeld> columns(team, D, mine);
  const Row<T, kWidth, kHeld> row_dy(dy, columns);
  const Row<T, kWidth, kHeld> row_x(x, columns);
  float sum = 0;
  columns.ForEach([&](int k, int d) {
    const auto gradient = row_dy.At(k, d), v = row_x.At(k, d);
    const auto weight = LoadPack<T, kWidth>(w + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sum += gradient[i] * weight[i] * (v[i] * rstd);
    }
  });
  const float mean_gx = FastDivide(team.Sum(sum), static_cast<float>(D));
  columns.ForEach([&](int k, int d) {
    const auto gradient = row_dy.At(k, d), v = row_x.At(k, d);
    const auto weight = LoadPack<T, kWidth>(w + d);
    Pack<T, kWidth> before = {};
    if (add != nullptr) before = LoadPack<T, kWidth>(add + d);
    StorePack(dx + d, MakePack<T, kWidth>([&](int i) {
                return rstd *
                           (gradient[i] * weight[i] - v[i] * rstd * mean_gx) +
                       before[i];
              }));
  });
}

template <typename Team, typename T, int kWidth, int kHeld, bool kAdds>
__global__ void __launch_bounds__(Team::kThreads, kForwardBlocks<Team, kAdds>)
    RmsNormForwardKernel(int team_size, int64_t N, int D, float eps, const T* x,
                         const T* add, T* sum_of, const T* __restrict__ w,
                         T* __restrict__ y, float* __restrict__ rstd) {
  const Team team(team_size);
  team.ForRows(N, [&](int64_t n, bool mine) {
    const float r = RmsForwardRow<kWidth, kHeld>(
        team, D, mine, eps, x + n * D, w, y + n * D,
        kAdds ? add + n * D : nullptr, sum_of + n * D);
    if (mine && rstd != nullptr && team.index() == 0) rstd[n] = r;
  });
}

template <typename Team, typename T, int kWidth, int kHeld>
__global__ void __launch_bounds__(Team::kThreads, kBackwardBlocks<Team>)
    RmsNormBackwardInputKernel(int team_size, int64_t N, int D, const T* dy,
                               const T* __restrict__ x, const T* __restrict__ w,
                               const float* __restrict__ rstd, const T* add,
                               T* dx) {
  const Team team(team_size);
  team.ForRows(N, [&](int64_t n, bool mine) {
    RmsBackwardRow<kWidth, kHeld>(team, D, mine, mine ? rstd[n] : 0, dy + n * D,
                                  x + n * D, w, dx + n * D,
                                  RowOrNull(add, n, D));
  });
}

}  // namespace delink::cuda
