// Sums over rows, column by column, for gradients of biases and of norms'
// weights. The bits are the same every time.
//
// A block sums one chunk of the rows for one tile of columns. `lanes`
// neighbouring threads, each with a pack of columns, share a row, and the block
// holds as many rows as fit; their sums are added in order in shared memory. If
// there are several chunks, their sums go to the stream's scratch, and a second
// launch of the same kernel sums these.
#pragma once

#include <algorithm>

#include "framework/device/cuda/divisor.cuh"
#include "framework/device/cuda/reduce.cuh"
#include "framework/device/cuda/vector.cuh"

namespace delink::cuda {

// Classes of terms: Add adds the terms of a row, at kWidth columns from d on,
// to each of the kOutputs sums.

// Rows `pitch` elements apart. Output o sums their columns from o * D on.
template <typename T, int kOutputsOf = 1>
struct PlainTerms {
  static constexpr int kOutputs = kOutputsOf;
  const T* x;
  int64_t pitch;
  int64_t D = 0;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t d,
                      float (&sums)[kOutputs][kWidth]) const {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const auto v = LoadPack<T, kWidth>(x + row * pitch + o * D + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[o][i] += v[i];
    }
  }
};

// dy * xhat of a layer norm, and dy.
template <typename T>
struct LayerNormTerms {
  static constexpr int kOutputs = 2;
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  int64_t D;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t d,
                      float (&sums)[kOutputs][kWidth]) const {
    const auto g = LoadPack<T, kWidth>(dy + row * D + d);
    const auto v = LoadPack<T, kWidth>(x + row * D + d);
    const float m = mean[row], r = rstd[row];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sums[0][i] += g[i] * ((v[i] - m) * r);
      sums[1][i] += g[i];
    }
  }
};

// dy * xhat of an RMS norm of heads; a whole row is one head. Row n * heads + h
// here is head first_head + h of token n.
template <typename T>
struct HeadTerms {
  static constexpr int kOutputs = 1;
  const T* dy;
  const T* x;
  const float* rstd;
  int64_t D;
  int64_t row_heads = 1, rstd_heads = 1, first_head = 0, heads = 1;
  Divisor by_heads{1};

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t d,
                      float (&sums)[kOutputs][kWidth]) const {
    const int64_t n = by_heads.Quotient(row);
    const int64_t h = first_head + row - n * heads;
    const int64_t at = (n * row_heads + h) * D + d;
    const auto g = LoadPack<T, kWidth>(dy + at);
    const auto v = LoadPack<T, kWidth>(x + at);
    const float r = rstd[n * rstd_heads + h];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[0][i] += g[i] * (v[i] * r);
  }
};

// Column d of output o of chunk c is stored at outputs[o] + c * pitch + d, or
// not at all if outputs[o] is null.
struct ColumnTargets {
  float* outputs[2] = {};
  int64_t pitch = 0;
  bool accumulate = false;
};

inline constexpr int kColumnThreads = 256;

// Grid [chunks * tiles]. `lanes` is a power of two up to 32.
template <typename Terms, int kWidth>
__global__ void __launch_bounds__(kColumnThreads)
    ColumnSumsKernel(Terms terms, int64_t N, int64_t D, int64_t rows_each,
                     int tiles, int lanes, ColumnTargets targets) {
  constexpr int kOutputs = Terms::kOutputs;
  // A thread's kWidth sums lie this far apart, which avoids bank conflicts.
  constexpr int kPitch = kColumnThreads + 32 / kWidth;
  __shared__ float shared[kOutputs][kWidth * kPitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = kColumnThreads / lanes;
  const int64_t chunk = blockIdx.x / tiles;
  const int64_t tile = (blockIdx.x - chunk * tiles) * lanes * kWidth;
  const int64_t d = tile + thread % lanes * kWidth;
  float sums[kOutputs][kWidth] = {};
  if (d < D) {
    const int64_t first = chunk * rows_each;
    const int64_t end = first + rows_each < N ? first + rows_each : N;
#pragma unroll 4
    for (int64_t row = first + thread / lanes; row < end; row += rows) {
      terms.template Add<kWidth>(row, d, sums);
    }
  }
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      shared[o][i * kPitch + thread] = sums[o][i];
    }
  }
  __syncthreads();
  if (thread >= lanes * kWidth || tile + thread >= D) return;
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    if (targets.outputs[o] == nullptr) continue;
    const float* column =
        shared[o] + thread % kWidth * kPitch + thread / kWidth;
    float sum = 0;
    for (int row = 0; row < rows; ++row) sum += column[row * lanes];
    float* const to =
        targets.outputs[o] + chunk * targets.pitch + tile + thread;
    *to = targets.accumulate ? *to + sum : sum;
  }
}

// On the host: how blocks divide the sums over N rows of D columns.
struct ColumnShape {
  int lanes;
  int64_t tiles, chunks, rows_each;
};

// Tiles of at most `max_lanes` packs of `width` columns, in one chunk.
inline ColumnShape ShapeTiles(int64_t N, int64_t D, int width, int max_lanes) {
  ColumnShape shape = {.lanes = 1, .chunks = 1, .rows_each = N};
  while (shape.lanes < max_lanes && shape.lanes * width < D) shape.lanes *= 2;
  const int64_t tile = int64_t{shape.lanes} * width;
  shape.tiles = (D + tile - 1) / tile;
  return shape;
}

// Enough chunks to keep all multiprocessors reading, but none of fewer than 4
// rows a thread, and not more than `max_chunks`.
inline void ShapeChunks(int64_t N, int multiprocessors, int64_t max_chunks,
                        ColumnShape& shape) {
  constexpr int kBlocksEach = 4, kRowsEach = 4;
  const int64_t rows = kColumnThreads / shape.lanes * kRowsEach;
  const int64_t wanted = kBlocksEach * multiprocessors / shape.tiles;
  const int64_t chunks = std::clamp<int64_t>(
      std::min(wanted, (N + rows - 1) / rows), 1, max_chunks);
  shape.rows_each = (N + chunks - 1) / chunks;
  shape.chunks = N > 0 ? (N + shape.rows_each - 1) / shape.rows_each : 1;
}

template <int kWidth, typename Terms>
void LaunchColumns(Stream& stream, const Terms& terms, int64_t N, int64_t D,
                   const ColumnShape& shape, const ColumnTargets& targets) {
  Launch(ColumnSumsKernel<Terms, kWidth>,
         dim3(static_cast<unsigned>(shape.tiles * shape.chunks)),
         dim3(kColumnThreads), 0, stream, terms, N, D, shape.rows_each,
         static_cast<int>(shape.tiles), shape.lanes, targets);
}

// Sums `terms` over N rows into targets.outputs[o] [D], which may be null for
// o > 0. `packed`: D columns of every row can be read in packs of T.
template <typename T, typename Terms>
void SumColumns(Stream& stream, const Terms& terms, int64_t N, int64_t D,
                bool packed, const ColumnTargets& targets) {
  if (D == 0) return;
  constexpr int kOutputs = Terms::kOutputs, kWidth = Pack<T>::kSize;
  const StreamInfo& info = InfoOf(stream);
  auto* const scratch = static_cast<float*>(info.scratch);
  const int64_t pitch = kOutputs * D;
  ColumnShape shape = ShapeTiles(N, D, packed ? kWidth : 1, kWarp);
  const int64_t fit = info.scratch_bytes / (pitch * 4);
  ShapeChunks(N, info.multiprocessors, std::max<int64_t>(fit, 1), shape);
  ColumnTargets partial = {.pitch = pitch};
  for (int o = 0; o < kOutputs; ++o) partial.outputs[o] = scratch + o * D;
  const ColumnTargets& to = shape.chunks > 1 ? partial : targets;
  if (packed) {
    LaunchColumns<kWidth>(stream, terms, N, D, shape, to);
  } else {
    LaunchColumns<1>(stream, terms, N, D, shape, to);
  }
  if (shape.chunks == 1) return;
  // Many small tiles, since there is little to read, from the L2 cache.
  LaunchColumns<1>(stream, PlainTerms<float, kOutputs>{scratch, pitch, D},
                   shape.chunks, D, ShapeTiles(shape.chunks, D, 1, 8), targets);
}

}  // namespace delink::cuda
