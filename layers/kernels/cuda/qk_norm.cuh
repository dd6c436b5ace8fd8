// RMS norm of the heads of a packed projection. A token has H + 2 Hkv heads, of
// which the last Hkv are copied. A team of lanes has a head, which is a row
// [Dh] of norm.cuh; neighbouring teams have neighbouring heads.
#pragma once

#include "framework/device/cuda/divisor.cuh"
#include "layers/kernels/cuda/norm.cuh"

namespace delink::cuda {

// The head and token of `row`, one of N (H + 2 Hkv).
struct HeadOf {
  int64_t n, h;

  __device__ HeadOf(int64_t row, int heads, const Divisor& by_heads)
      : n(by_heads.Quotient(row)), h(row - n * heads) {}
};

template <int kWidth, typename Team, typename T>
__device__ void CopyRow(const Team& team, int D, const T* from, T* to) {
  Columns<kWidth, 0>(team, D, true).ForEach([&](int, int d) {
    StorePack(to + d, LoadPack<T, kWidth>(from + d));
  });
}

template <typename Team, typename T, int kWidth, int kHeld>
__global__ void __launch_bounds__(Team::kThreads, kForwardBlocks<Team>)
    QkNormForwardKernel(int team_size, int64_t N, int H, int Hkv,
                        Divisor by_heads, int Dh, float eps,
                        const T* __restrict__ x, const T* __restrict__ q_w,
                        const T* __restrict__ k_w, T* __restrict__ y,
                        float* __restrict__ rstd) {
  const Team team(team_size);
  const int normed = H + Hkv, heads = normed + Hkv;
  team.ForRows(N * heads, [&](int64_t row, bool mine) {
    const HeadOf head(row, heads, by_heads);
    const int64_t at = row * Dh;
    const bool norm = mine && head.h < normed;
    const float r = RmsForwardRow<kWidth, kHeld>(
        team, Dh, norm, eps, x + at, head.h < H ? q_w : k_w, y + at);
    if (norm && rstd != nullptr && team.index() == 0) {
      rstd[head.n * normed + head.h] = r;
    }
    if (mine && !norm) CopyRow<kWidth>(team, Dh, x + at, y + at);
  });
}

// dx may be dy.
template <typename Team, typename T, int kWidth, int kHeld>
__global__ void __launch_bounds__(Team::kThreads, kBackwardBlocks<Team>)
    QkNormBackwardInputKernel(int team_size, int64_t N, int H, int Hkv,
                              Divisor by_heads, int Dh, const T* dy,
                              const T* __restrict__ x,
                              const T* __restrict__ q_w,
                              const T* __restrict__ k_w,
                              const float* __restrict__ rstd, T* dx) {
  const Team team(team_size);
  const int normed = H + Hkv, heads = normed + Hkv;
  team.ForRows(N * heads, [&](int64_t row, bool mine) {
    const HeadOf head(row, heads, by_heads);
    const int64_t at = row * Dh;
    const bool norm = mine && head.h < normed;
    RmsBackwardRow<kWidth, kHeld>(
        team, Dh, norm, norm ? rstd[head.n * normed + head.h] : 0, dy + at,
        x + at, head.h < H ? q_w : k_w, dx + at);
    if (mine && !norm && dx != dy) {
      CopyRow<kWidth>(team, Dh, dy + at, dx + at);
    }
  });
}

}  // namespace delink::cuda
