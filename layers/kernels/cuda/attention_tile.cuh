// Building blocks of the attention kernels. A block of 16 x 16 threads works on
// a tile of 64 rows by 64 columns of scores, and sums results [64, kColumns].
// The rows are queries and the columns keys, or the other way round. Thread
// (y, x) has the rows 4 y + r and the columns x + 16 c of a tile, and the same
// rows and the columns 4 x + 64 c + e of a result; r, c, e < 4 or as the width
// needs. All numbers are float; rows and columns past the end count as 0.
#pragma once

#include <cmath>

#include "framework/device/cuda/reduce.cuh"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kSide = 16;
inline constexpr int kTile = 64;
inline constexpr int kEach = kTile / kSide;  // rows of a thread; columns too
// Scores are computed in chunks of this many elements of the heads. The strides
// in shared memory avoid bank conflicts.
inline constexpr int kChunk = 32;
inline constexpr int kChunkStride = kChunk + 4;
inline constexpr int kWeightStride = kTile + 4;
inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kLn2 = 0.693147181F;

struct alignas(16) AttentionShared {
  float staged[2 * kTile * kChunkStride];
  float weights[kTile * kWeightStride];
  float lse[kTile], delta[kTile];  // of the tile's queries, lse by log2
};

// Some rows of one head. `packed`: they can be read in packs.
template <typename T>
struct HeadRows {
  const T* at;
  int64_t stride;
  int count;
  bool packed;
};

// The vector of head h at token t of sample b.
template <typename T, typename Memory>
__device__ T* HeadAt(Memory* base, HeadStrides strides, int64_t Dh, int64_t b,
                     int64_t t, int64_t h) {
  return static_cast<T*>(base) + b * strides.batch + t * strides.row + h * Dh;
}

// Query i has the place i + (Tk - Tq) among the keys. It sees key j if
// 0 <= place - j < window and, with positions, place - j <= positions[i].
struct Band {
  int offset;                // Tk - Tq
  int window;                // Tk if there is none
  const int32_t* positions;  // [Tq], of the sample's queries, or null

  template <typename Args>
  __device__ Band(const Args& s, int64_t b)
      : offset(static_cast<int>(s.Tk - s.Tq)),
        window(static_cast<int>(s.window > 0 && s.window < s.Tk ? s.window
                                                                : s.Tk)),
        positions(s.positions != nullptr
                      ? s.positions + b * RowOf(s) + (s.Tk - s.Tq)
                      : nullptr) {}
  // The first key that a query below Tq sees. It never decreases with `query`.
  __device__ int First(int query) const {
    const int place = query + offset;
    const int behind = positions != nullptr && positions[query] < window - 1
                           ? positions[query]
                           : window - 1;
    return place > behind ? place - behind : 0;
  }

 private:
  template <typename Args>
  __device__ static int64_t RowOf(const Args& s) {
    return s.positions_row > 0 ? s.positions_row : s.Tk;
  }
};

// By value, since device code has no addresses of the host's constants.
template <typename Number>
__device__ Number Smaller(Number a, Number b) {
  return b < a ? b : a;
}

struct Range {
  int begin, end;
};

// The keys that any of the queries [first, first + count) sees.
__device__ inline Range KeysOf(const Band& band, int first, int count) {
  return {band.First(first), first + count + band.offset};
}
// The queries, of Tq, that see one of the keys [first, first + count), if there
// are no positions. Positions can hide these keys from the last of the queries.
__device__ inline Range QueriesOf(const Band& band, int first, int count,
                                  int Tq) {
  return {first > band.offset ? first - band.offset : 0,
          Smaller(first + count - 1 - band.offset + band.window, Tq)};
}

__device__ inline int ThreadX() {
  return static_cast<int>(threadIdx.x) % kSide;
}
__device__ inline int ThreadY() {
  return static_cast<int>(threadIdx.x) / kSide;
}

// `from` and `to` are 16-byte aligned.
__device__ inline float4 LoadFloat4(const float* from) {
  float4 value;
  *reinterpret_cast<uint4*>(&value) = Load16(from);
  return value;
}
__device__ inline void StoreFloat4(float* to, float4 value) {
  Store16(to, *reinterpret_cast<const uint4*>(&value));
}

// Copies kRows x kColumns of `rows`, from element `first` of each on, to
// shared memory as floats; zeros after the last row and the `width`-th column.
template <int kRows, int kColumns, int kStride, typename T>
__device__ void Stage(const HeadRows<T>& rows, int64_t first, int width,
                      float* to) {
  constexpr int kPack = Pack<T>::kSize;
  static_assert(kRows * kColumns % (kAttentionThreads * kPack) == 0);
  if (!rows.packed) {
#pragma unroll 2  // more would take registers from the other path
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns;
         i += kAttentionThreads) {
      const int row = i / kColumns, column = i % kColumns;
      const bool there = row < rows.count && column < width;
      to[row * kStride + column] =
          there ? ToFloat(rows.at[row * rows.stride + first + column]) : 0.0F;
    }
    return;
  }
  constexpr int kPacks = kRows * kColumns / kPack / kAttentionThreads;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int element =
        (i * kAttentionThreads + static_cast<int>(threadIdx.x)) * kPack;
    const int row = element / kColumns, column = element % kColumns;
    float values[kPack] = {};
    if (row < rows.count && column < width) {
      const auto pack =
          LoadPack<T>(rows.at + row * rows.stride + first + column);
#pragma unroll
      for (int e = 0; e < kPack; ++e) values[e] = pack[e];
    }
#pragma unroll
    for (int e = 0; e < kPack; e += 4) {
      StoreFloat4(
          to + row * kStride + column + e,
          make_float4(values[e], values[e + 1], values[e + 2], values[e + 3]));
    }
  }
}

// scores[r][c] += a . b for the thread's rows of `a` and its columns, which are
// rows of `b`. All threads of the block must call it.
template <typename T>
__device__ void AddScores(const HeadRows<T>& a, const HeadRows<T>& b, int Dh,
                          AttentionShared& shared,
                          float (&scores)[kEach][kEach]) {
  float* const left = shared.staged;
  float* const right = shared.staged + kTile * kChunkStride;
  for (int d = 0; d < Dh; d += kChunk) {
    const int width = Smaller(kChunk, Dh - d);
    __syncthreads();
    Stage<kTile, kChunk, kChunkStride>(a, d, width, left);
    Stage<kTile, kChunk, kChunkStride>(b, d, width, right);
    __syncthreads();
    if (kEach * ThreadY() >= a.count) continue;
#pragma unroll 1
    for (int i = 0; i < width; i += 4) {
      float4 columns[kEach];
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        columns[c] =
            LoadFloat4(right + (ThreadX() + kSide * c) * kChunkStride + i);
      }
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        const float4 row =
            LoadFloat4(left + (kEach * ThreadY() + r) * kChunkStride + i);
#pragma unroll
        for (int c = 0; c < kEach; ++c) {
          scores[r][c] += row.x * columns[c].x + row.y * columns[c].y +
                          row.z * columns[c].z + row.w * columns[c].w;
        }
      }
    }
  }
}

// Stores the thread's numbers of a tile for AddWeighted. Needs a barrier after
// the previous AddWeighted.
__device__ inline void StoreWeights(const float (&tile)[kEach][kEach],
                                    AttentionShared& shared) {
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      shared.weights[(kEach * ThreadY() + r) * kWeightStride + ThreadX() +
                     kSide * c] = tile[r][c];
    }
  }
}

// sum[row][column] += sum over j of weights[row][j] * rows[j][column], for
// `count` rows and the `width` columns from `first` on. All threads of the
// block must call it.
template <int kColumns, typename T>
__device__ void AddWeighted(int count, const HeadRows<T>& rows, int64_t first,
                            int width, AttentionShared& shared,
                            float (&sum)[kEach][kColumns / kSide]) {
  constexpr int kRows = kTile * kTile / kColumns;  // rows that fit at once
  static_assert(kRows * kColumns <= 2 * kTile * kChunkStride);
  for (int j = 0; j < rows.count; j += kRows) {
    const HeadRows<T> some = {rows.at + j * rows.stride, rows.stride,
                              Smaller(kRows, rows.count - j), rows.packed};
    __syncthreads();
    Stage<kRows, kColumns, kColumns>(some, first, width, shared.staged);
    __syncthreads();
    if (kEach * ThreadY() >= count || 4 * ThreadX() >= width) continue;
#pragma unroll 1
    for (int i = 0; i < some.count; i += 4) {
      float4 weights[kEach];
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        weights[r] = LoadFloat4(
            shared.weights + (kEach * ThreadY() + r) * kWeightStride + j + i);
      }
#pragma unroll
      for (int c = 0; c < kColumns / kTile; ++c) {
        const float* const from =
            shared.staged + i * kColumns + 4 * ThreadX() + kTile * c;
        const float4 v0 = LoadFloat4(from);
        const float4 v1 = LoadFloat4(from + kColumns);
        const float4 v2 = LoadFloat4(from + 2 * kColumns);
        const float4 v3 = LoadFloat4(from + 3 * kColumns);
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          const float4 w = weights[r];
          float* const to = sum[r] + 4 * c;
          to[0] += w.x * v0.x + w.y * v1.x + w.z * v2.x + w.w * v3.x;
          to[1] += w.x * v0.y + w.y * v1.y + w.z * v2.y + w.w * v3.y;
          to[2] += w.x * v0.z + w.y * v1.z + w.z * v2.z + w.w * v3.z;
          to[3] += w.x * v0.w + w.y * v1.w + w.z * v2.w + w.w * v3.w;
        }
      }
    }
  }
}

// Stores factor[r] * sum[r] to the `count` rows from `to` on, columns as in
// AddWeighted.
template <int kColumns, typename T>
__device__ void StoreRows(const float (&sum)[kEach][kColumns / kSide],
                          const float (&factor)[kEach], int count,
                          int64_t stride, int64_t first, int width, T* to) {
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const int row = kEach * ThreadY() + r;
    if (row >= count) continue;
#pragma unroll
    for (int i = 0; i < kColumns / kSide; ++i) {
      const int column = 4 * ThreadX() + kTile * (i / 4) + i % 4;
      if (column < width) {
        to[row * stride + first + column] = FromFloat<T>(factor[r] * sum[r][i]);
      }
    }
  }
}

// The sum over the 16 threads with the same rows, returned in all of them.
__device__ inline float SumAcross(float value) {
#pragma unroll
  for (int lane = kSide / 2; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, lane);
  }
  return value;
}
__device__ inline float MaxAcross(float value) {
#pragma unroll
  for (int lane = kSide / 2; lane > 0; lane /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, lane));
  }
  return value;
}

}  // namespace delink::cuda
