// A tile of a bf16 product C = op(A) op(B) [+ C] on tensor cores, sums in f32.
//
// A block of 8 warps computes 128 x 128 elements of C, a warp 64 x 32 of them.
// It takes 32 values of k at a time from shared memory, while the next 32 are
// on their way from memory to registers. A sum is in the order of k, 16 values
// at a time: it depends neither on the tile's other rows and columns nor on the
// alignment, by which rows are read as packs or element by element.
#pragma once

#include "framework/device/cuda/matrix.cuh"
#include "framework/device/cuda/reduce.cuh"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

inline constexpr int kTensorThreads = 256;
inline constexpr int kTensorTile = 128;
inline constexpr int kTensorDepth = 32;
inline constexpr int kTensorPacks =
    kTensorTile * kTensorDepth / 8 / kTensorThreads;  // of 8, of a thread

// Whether rows of A and B are read as packs, and C is written by pairs.
struct TensorAccess {
  bool a, b, c;
};

// kTensorTile rows of op(A), or columns of op(B), for kTensorDepth values of k.
// It is in shared memory as it is in memory: kAlong if neighbours are values
// of k. Rows are 16 bytes longer, so that eight of them are in all banks.
template <bool kAlong>
struct TensorTile {
  static constexpr int kRows = kAlong ? kTensorTile : kTensorDepth;
  static constexpr int kColumns = kAlong ? kTensorDepth : kTensorTile;
  static constexpr int kStride = kColumns + 8;
  alignas(16) __nv_bfloat16 values[kRows * kStride];
};

// The operand, tile after tile, as a thread reads it: packs of a column of the
// tile, some rows apart.
template <bool kAlong>
class TensorOperand {
 public:
  using Tile = TensorTile<kAlong>;

  // `count` rows or columns, and `depth` values of k; those from `first` on.
  __device__ TensorOperand(const void* matrix, int64_t ld, int64_t first,
                           int64_t count, int64_t depth, bool packed)
      : at_(static_cast<const __nv_bfloat16*>(matrix) +
            (kAlong ? first * ld : first) + Row() * ld + Column()),
        ld_(ld),
        count_(static_cast<int>(count - first)),
        depth_(static_cast<int>(depth)),
        packed_(packed) {}
  // What the thread has of the next tile; zeros outside the operand.
  __device__ void Load(uint4 (&to)[kTensorPacks]) {
    const int rows = (kAlong ? count_ : depth_) - Row();
    const int columns = (kAlong ? depth_ : count_) - Column();
#pragma unroll
    for (int i = 0; i < kTensorPacks; ++i) {
      const __nv_bfloat16* const from = at_ + i * kStep * ld_;
      if (i * kStep >= rows || columns <= 0) {
        to[i] = make_uint4(0, 0, 0, 0);
      } else if (packed_) {
        to[i] = Load16(from);
      } else {
        Pack<__nv_bfloat16> pack;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          pack.values[e] = e < columns ? from[e] : FromFloat<__nv_bfloat16>(0);
        }
        to[i] = *reinterpret_cast<const uint4*>(&pack);
      }
    }
    at_ += kAlong ? kTensorDepth : kTensorDepth * ld_;
    depth_ -= kTensorDepth;
  }
  __device__ static void Store(const uint4 (&from)[kTensorPacks], Tile& tile) {
#pragma unroll
    for (int i = 0; i < kTensorPacks; ++i) {
      Store16(tile.values + (Row() + i * kStep) * Tile::kStride + Column(),
              from[i]);
    }
  }

 private:
  static constexpr int kStep = kTensorThreads * 8 / Tile::kColumns;  // rows
  __device__ static int Row() {
    return static_cast<int>(threadIdx.x) * 8 / Tile::kColumns;
  }
  __device__ static int Column() {
    return static_cast<int>(threadIdx.x) * 8 % Tile::kColumns;
  }

  const __nv_bfloat16* at_;
  int64_t ld_;
  int count_, depth_;
  bool packed_;
};

// 16 rows of A, or columns of B, from `first` on, for 16 values of k, as
// AddProduct has them: A[16, 16], or B[16, 8] twice.
template <bool kOfA, bool kAlong>
__device__ void LoadOperand(const TensorTile<kAlong>& tile, int first, int k,
                            uint32_t (&to)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int matrix = lane / 8, row = lane % 8;
  first += (kOfA ? matrix % 2 : matrix / 2) * 8 + (kAlong ? row : 0);
  k += (kOfA ? matrix / 2 : matrix % 2) * 8 + (kAlong ? 0 : row);
  constexpr int kStride = TensorTile<kAlong>::kStride;
  LoadMatrices<!kAlong>(
      tile.values + (kAlong ? first * kStride + k : k * kStride + first), to);
}

// Adds two numbers to C, or writes them; the second one if it is there.
template <typename P>
__device__ void PutPair(P* to, bool second, bool paired, bool accumulate,
                        float v0, float v1) {
  if (paired) {
    auto* const pair = reinterpret_cast<Pack<P, 2>*>(to);
    if (accumulate) {
      const Pack<P, 2> before = *pair;
      v0 += before[0];
      v1 += before[1];
    }
    *pair = MakePack<P, 2>([=](int i) { return i == 0 ? v0 : v1; });
    return;
  }
  to[0] = FromFloat<P>(v0 + (accumulate ? ToFloat(to[0]) : 0.0F));
  if (!second) return;
  to[1] = FromFloat<P>(v1 + (accumulate ? ToFloat(to[1]) : 0.0F));
}

// The tile of C from this row and column on. A is stored transposed and B not,
// or as the template says; C is of type P.
template <bool kTransposeA, bool kTransposeB, typename P>
__device__ void TensorProduct(const MatmulArgs& s, int64_t row, int64_t column,
                              TensorAccess access) {
  using A = TensorOperand<!kTransposeA>;
  using B = TensorOperand<kTransposeB>;
  __shared__ typename A::Tile a_tiles[2];
  __shared__ typename B::Tile b_tiles[2];
  A a(s.a, s.lda, row, s.m, s.k, access.a);
  B b(s.b, s.ldb, column, s.n, s.k, access.b);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  const bool idle = row + warp_row >= s.m || column + warp_column >= s.n;
  float sum[4][4][4] = {};
  uint4 next_a[kTensorPacks], next_b[kTensorPacks];
  a.Load(next_a);
  b.Load(next_b);
  int now = 0;
  for (int64_t k = 0; k < s.k; k += kTensorDepth, now ^= 1) {
    // All warps have read what was here before the last barrier.
    A::Store(next_a, a_tiles[now]);
    B::Store(next_b, b_tiles[now]);
    __syncthreads();
    a.Load(next_a);
    b.Load(next_b);
    if (idle) continue;
#pragma unroll
    for (int d = 0; d < kTensorDepth; d += 16) {
      uint32_t right[2][4];
      LoadOperand<false>(b_tiles[now], warp_column, d, right[0]);
      LoadOperand<false>(b_tiles[now], warp_column + 16, d, right[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t left[4];
        LoadOperand<true>(a_tiles[now], warp_row + 16 * i, d, left);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          AddProduct(left, right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1],
                     sum[i][j]);
        }
      }
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t m = row + warp_row + 16 * i + lane / 4 + j % 2 * 8;
      const int64_t n = column + warp_column + j / 2 * 8 + lane % 4 * 2;
      if (m >= s.m || n >= s.n) continue;
      PutPair(static_cast<P*>(s.c) + m * s.ldc + n, n + 1 < s.n, access.c,
              s.accumulate, sum[i][j / 2][j % 2 * 2],
              sum[i][j / 2][j % 2 * 2 + 1]);
    }
  }
}

}  // namespace delink::cuda
