// C = op(A) op(B) [+ C] [+ bias], for products that cuBLASLt does not take: k
// is 0, or rows are not aligned. Simple and correct, with some percent of the
// device's speed.
//
// A block of 16 x 16 threads computes 64 x 64 elements of C from tiles of A and
// B in shared memory, for 16 values of k at a time. A thread computes 4 x 4 of
// them, 16 apart, so that neighbours read neighbouring banks. Sums are f32, in
// the order of k.
#pragma once

#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

inline constexpr int kMatmulTile = 64;  // rows and columns of a block
inline constexpr int kMatmulDepth = 16;
inline constexpr int kMatmulSide = 16;  // threads each way
inline constexpr int kMatmulEach = kMatmulTile / kMatmulSide;
inline constexpr int kMatmulThreads = kMatmulSide * kMatmulSide;

// tile[d][i] = element (first + i, depth + d) of a matrix of `rows` rows by
// `columns`, 0 outside it; `transposed` ones are stored [columns, rows].
// Neighbouring threads read neighbouring elements.
template <typename T>
__device__ void LoadMatmulTile(float (*tile)[kMatmulTile + 1], const T* from,
                               int64_t ld, bool transposed, int64_t first,
                               int64_t depth, int64_t rows, int64_t columns) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int at = thread; at < kMatmulTile * kMatmulDepth; at += kMatmulThreads) {
    const int i = transposed ? at % kMatmulTile : at / kMatmulDepth;
    const int d = transposed ? at / kMatmulTile : at % kMatmulDepth;
    const int64_t row = first + i, column = depth + d;
    const int64_t index = transposed ? column * ld + row : row * ld + column;
    tile[d][i] = row < rows && column < columns ? ToFloat(from[index]) : 0;
  }
}

// The tile of C from this row and column on, by a block. C is of type P if it
// is the gradient of a parameter, else of type T.
template <typename T, typename P>
__device__ void TiledProduct(const MatmulArgs& s, int64_t row, int64_t column) {
  __shared__ float a[kMatmulDepth][kMatmulTile + 1];
  __shared__ float b[kMatmulDepth][kMatmulTile + 1];
  const int y = static_cast<int>(threadIdx.x) / kMatmulSide;
  const int x = static_cast<int>(threadIdx.x) % kMatmulSide;
  float sum[kMatmulEach][kMatmulEach] = {};
  for (int64_t depth = 0; depth < s.k; depth += kMatmulDepth) {
    // C's columns are B's columns, so the transposition is the other way round.
    LoadMatmulTile(a, static_cast<const T*>(s.a), s.lda, s.transpose_a, row,
                   depth, s.m, s.k);
    LoadMatmulTile(b, static_cast<const T*>(s.b), s.ldb, !s.transpose_b, column,
                   depth, s.n, s.k);
    __syncthreads();
    for (int d = 0; d < kMatmulDepth; ++d) {
      for (int i = 0; i < kMatmulEach; ++i) {
        const float left = a[d][y + i * kMatmulSide];
        for (int j = 0; j < kMatmulEach; ++j) {
          sum[i][j] += left * b[d][x + j * kMatmulSide];
        }
      }
    }
    __syncthreads();
  }
  const T* const bias = static_cast<const T*>(s.bias);
  P* const c = static_cast<P*>(s.c);
  for (int i = 0; i < kMatmulEach; ++i) {
    for (int j = 0; j < kMatmulEach; ++j) {
      const int64_t m = row + y + i * kMatmulSide;
      const int64_t n = column + x + j * kMatmulSide;
      if (m >= s.m || n >= s.n) continue;
      float result = sum[i][j];
      if (s.accumulate) result += ToFloat(c[m * s.ldc + n]);
      if (bias != nullptr) result += ToFloat(bias[n]);
      c[m * s.ldc + n] = FromFloat<P>(result);
    }
  }
}

// Blocks along x have the rows of C, along y its columns.
template <typename T, typename P>
__global__ void __launch_bounds__(kMatmulThreads)
    TiledMatmulKernel(MatmulArgs s) {
  TiledProduct<T, P>(s, int64_t{blockIdx.x} * kMatmulTile,
                     int64_t{blockIdx.y} * kMatmulTile);
}

}  // namespace delink::cuda
