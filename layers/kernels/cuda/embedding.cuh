// Embedding: gathers rows of a vocabulary and of positions, and computes their
// gradients.
//
// In all kernels P is the type of a gradient, float or T. A thread has kSize
// neighbouring columns: one, or 16 bytes of them. Threads along x share a row,
// threads along y have different rows.
//
// The gradient of the vocabulary sums runs of equal tokens in a list sorted by
// token (token_sort.h). A row of threads has one tile of the list, for any
// lengths of runs. If a run is inside a tile, its sum goes to its row of the
// gradient. If it crosses the tile's ends, the tile stores a partial sum. There
// are at most two: for a run that began in an earlier tile, and for a run that
// begins here and continues. JoinTiles adds a run's partial sums in order.
#pragma once

#include <algorithm>

#include "framework/device/cuda/floats.cuh"
#include "layers/kernels/arguments.h"
#include "layers/kernels/cuda/token_sort.h"

namespace delink::cuda {

inline constexpr int kGatherThreads = 256;
inline constexpr int kRunThreads = 128;
inline constexpr int kRowsAhead = 4;  // loaded together
// Blocks of SumSamples on a multiprocessor. Without this, ptxas tries to fit
// more and spills registers.
inline constexpr int kSampleBlocks = 4;

template <typename T, int kSize>
__global__ void __launch_bounds__(kGatherThreads)
    GatherRows(EmbeddingForwardArgs s) {
  const int64_t n = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (n >= s.B * s.T) return;
  const int64_t row = s.tokens[n] - s.first_token;
  const T* const w = static_cast<const T*>(s.w) + row * s.D;
  T* const y = static_cast<T*>(s.y) + n * s.D;
  const int64_t step = int64_t{blockDim.x} * kSize;
  if (s.partial && (row < 0 || row >= s.V)) {
    for (int64_t d = int64_t{threadIdx.x} * kSize; d < s.D; d += step) {
      StorePack(y + d, MakePack<T, kSize>([](int) { return 0.0F; }));
    }
    return;
  }
  if (s.p == nullptr) {
    for (int64_t d = int64_t{threadIdx.x} * kSize; d < s.D; d += step) {
      StorePack(y + d, LoadPack<T, kSize>(w + d));
    }
    return;
  }
  const int64_t position =
      s.positions != nullptr ? s.positions[n] : s.first_position + n % s.T;
  const T* const p = static_cast<const T*>(s.p) + position * s.D;
  for (int64_t d = int64_t{threadIdx.x} * kSize; d < s.D; d += step) {
    const Pack<T, kSize> a = LoadPack<T, kSize>(w + d);
    const Pack<T, kSize> b = LoadPack<T, kSize>(p + d);
    StorePack(y + d, MakePack<T, kSize>([&](int i) { return a[i] + b[i]; }));
  }
}

struct RunSums {
  int64_t n, D;
  int64_t rows;  // of the list, in a tile
  int64_t tiles;
  const Occurrence* sorted;  // [n]
  const void* dy;            // [n, D] by position
  void* dw;                  // [V, D] P
  float* partial;            // [tiles, 2, D]: run from before, run that goes on
  int64_t V;                 // rows of dw; no token's sum goes to row V
  bool accumulate;

  // Whether sorted[i] and sorted[i - 1] are in the same run.
  __device__ bool Continues(int64_t i) const {
    return i > 0 && i < n && sorted[i].token == sorted[i - 1].token;
  }
};

// Sums one tile, for some of its columns.
template <typename T, typename P, int kSize>
__global__ void __launch_bounds__(kRunThreads) SumTiles(RunSums s) {
  const int64_t tile = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t d = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize;
  const int64_t begin = tile * s.rows;
  if (begin >= s.n || d >= s.D) return;
  const int64_t end = std::min(s.n, begin + s.rows);
  const bool came_in = s.Continues(begin), goes_on = s.Continues(end);
  const T* const dy = static_cast<const T*>(s.dy) + d;

  float sum[kSize] = {};
  bool first_run = true;
  int32_t token = s.sorted[begin].token;
  const auto store = [&](bool last_run) {
    if (first_run && came_in) {
      StoreFloats(s.partial + 2 * tile * s.D + d, sum);
    } else if (last_run && goes_on) {
      StoreFloats(s.partial + (2 * tile + 1) * s.D + d, sum);
    } else if (token < s.V) {
      StoreGradient(static_cast<P*>(s.dw) + token * s.D + d, sum, s.accumulate);
    }
  };
  for (int64_t i = begin; i < end; i += kRowsAhead) {
    Occurrence next[kRowsAhead];
    Pack<T, kSize> rows[kRowsAhead];
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      // Past the end it loads the last one again, to avoid branches.
      next[j] = s.sorted[std::min(i + j, end - 1)];
    }
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      rows[j] = LoadPack<T, kSize>(dy + next[j].position * s.D);
    }
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      if (i + j >= end) break;
      if (next[j].token != token) {
        store(false);
        first_run = false;
        token = next[j].token;
#pragma unroll
        for (int k = 0; k < kSize; ++k) sum[k] = 0.0F;
      }
#pragma unroll
      for (int k = 0; k < kSize; ++k) sum[k] += rows[j][k];
    }
  }
  store(true);
}

// Sums the run that begins in a tile and continues in the next, if any.
template <typename P, int kSize>
__global__ void __launch_bounds__(kRunThreads) JoinTiles(RunSums s) {
  const int64_t tile = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t d = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kSize;
  const int64_t begin = tile * s.rows, end = begin + s.rows;
  if (end >= s.n || d >= s.D || !s.Continues(end)) return;
  const int32_t token = s.sorted[end].token;
  if (token >= s.V) return;
  if (begin > 0 && s.sorted[begin - 1].token == token) return;
  // The last tile that begins with this token.
  int64_t last = tile + 1, past = s.tiles;
  while (past - last > 1) {
    const int64_t middle = (last + past) / 2;
    (s.sorted[middle * s.rows].token == token ? last : past) = middle;
  }
  float sum[kSize];
  LoadFloats(s.partial + (2 * tile + 1) * s.D + d, sum);
#pragma unroll 4
  for (int64_t i = tile + 1; i <= last; ++i) {
    float more[kSize];
    LoadFloats(s.partial + 2 * i * s.D + d, more);
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum[k] += more[k];
  }
  StoreGradient(static_cast<P*>(s.dw) + token * s.D + d, sum, s.accumulate);
}

// Gradient of the position table: each row is the sum over samples, in order.
template <typename T, typename P, int kSize>
__global__ void __launch_bounds__(kGatherThreads, kSampleBlocks)
    SumSamples(EmbeddingBackwardPositionArgs s) {
  const int64_t position = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (position >= s.Tmax) return;
  const int64_t t = position - s.first_position;
  const bool used = t >= 0 && t < s.T;
  if (!used && s.accumulate) return;
  const int64_t samples = used ? s.B : 0;
  const int64_t step = int64_t{blockDim.x} * kSize;
  for (int64_t d = int64_t{threadIdx.x} * kSize; d < s.D; d += step) {
    float sum[kSize] = {};
    const T* const dy = static_cast<const T*>(s.dy) + d;
#pragma unroll 4
    for (int64_t b = 0; b < samples; ++b) {
      const auto row = LoadPack<T, kSize>(dy + (b * s.T + t) * s.D);
#pragma unroll
      for (int k = 0; k < kSize; ++k) sum[k] += row[k];
    }
    StoreGradient(static_cast<P*>(s.dp) + position * s.D + d, sum,
                  s.accumulate);
  }
}

}  // namespace delink::cuda
