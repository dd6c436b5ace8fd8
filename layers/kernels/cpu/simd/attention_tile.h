// What attention's two directions share. A tile is up to kQueryTile queries of
// one head by up to kKeyTile keys. Scores are held transposed, [key][query]:
// statistics per query are then lanes of a vector, and no product needs a
// transposed copy but that of the query tile, made once per tile.
//
// Query i of a tile sees key j of a tile when j <= i + shift.
#pragma once

#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/gemm_tile.h"
#include "layers/kernels/cpu/simd/math.h"

namespace delink::cpu::DELINK_SIMD {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr double kLn2 = 0.69314718055994530942;
inline constexpr int kTileVecs = kQueryTile / kWidth;

static inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The vector of one head at one token.
static inline const float* HeadAt(const void* base, HeadStrides strides,
                                  int64_t Dh, int64_t b, int64_t t, int64_t h) {
  return static_cast<const float*>(base) + b * strides.batch + t * strides.row +
         h * Dh;
}
static inline float* HeadAt(void* base, HeadStrides strides, int64_t Dh,
                            int64_t b, int64_t t, int64_t h) {
  return static_cast<float*>(base) + b * strides.batch + t * strides.row +
         h * Dh;
}

// to[d][i] = from[i][d] * factor; queries past `rows` are 0.
static inline void PackTransposed(const float* from, int64_t row_stride,
                                  int64_t rows, int64_t Dh, float factor,
                                  float* to) {
  for (int64_t i = 0; i < kQueryTile; ++i) {
    if (i >= rows) {
      for (int64_t d = 0; d < Dh; ++d) to[d * kQueryTile + i] = 0.0F;
      continue;
    }
    const float* row = from + i * row_stride;
    for (int64_t d = 0; d < Dh; ++d) to[d * kQueryTile + i] = row[d] * factor;
  }
}

// Rows close together: with the strides of a packed qkv matrix they would fall
// into few sets of the cache.
static inline void PackRows(const float* from, int64_t row_stride, int64_t rows,
                            int64_t Dh, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to + i * Dh, from + i * row_stride, Dh * sizeof(float));
  }
}

// How many keys to take at once from key j on: all that every query sees, then
// a block of registers at a time.
static inline int64_t KeyBlock(int64_t j, int64_t keys, int64_t shift) {
  return j <= shift ? Smaller(shift + 1, keys) - j
                    : Smaller(kMaxRows, keys - j);
}

// scores[key][query] = k . q for the pairs that are seen; whole vectors of
// queries that see none of a block of keys are left as they were.
static inline void Scores(const float* k, int64_t row_stride,
                          const float* q_transposed, int64_t queries,
                          int64_t keys, int64_t Dh, int64_t shift,
                          float* scores) {
  const int64_t columns = (queries + kWidth - 1) / kWidth * kWidth;
  for (int64_t j = 0, m = 0; j < keys; j += m) {
    m = KeyBlock(j, keys, shift);
    const int64_t first = Larger(j - shift, 0) / kWidth * kWidth;
    Multiply<false>({.m = m,
                     .n = columns - first,
                     .k = Dh,
                     .a = k + j * row_stride,
                     .lda = row_stride,
                     .b = q_transposed + first,
                     .ldb = kQueryTile,
                     .c = scores + j * kQueryTile + first,
                     .ldc = kQueryTile,
                     .accumulate = false});
  }
}

// out[query][d] (=|+=) weights[key][query]^T values[key][d].
static inline void SumOverKeys(const float* weights, const float* values,
                               int64_t values_stride, int64_t queries,
                               int64_t keys, int64_t Dh, int64_t shift,
                               float* out, int64_t out_stride,
                               bool accumulate) {
  for (int64_t i = 0, m = 0; i < queries; i += m) {
    // Once a query sees all keys, so do the rest.
    m = i + shift + 1 >= keys ? queries - i : Smaller(kMaxRows, queries - i);
    Multiply<true>({.m = m,
                    .n = Dh,
                    .k = Smaller(keys, i + m + shift),
                    .a = weights + i,
                    .lda = kQueryTile,
                    .b = values,
                    .ldb = values_stride,
                    .c = out + i * out_stride,
                    .ldc = out_stride,
                    .accumulate = accumulate});
  }
}

// out[key][d] += weights[key][query] values[query][d].
static inline void SumOverQueries(const float* weights, const float* values,
                                  int64_t values_stride, int64_t queries,
                                  int64_t keys, int64_t Dh, int64_t shift,
                                  float* out, int64_t out_stride) {
  for (int64_t j = 0, m = 0; j < keys; j += m) {
    m = KeyBlock(j, keys, shift);
    const int64_t first = Larger(j - shift, 0);
    Multiply<false>({.m = m,
                     .n = Dh,
                     .k = queries - first,
                     .a = weights + j * kQueryTile + first,
                     .lda = kQueryTile,
                     .b = values + first * values_stride,
                     .ldb = values_stride,
                     .c = out + j * out_stride,
                     .ldc = out_stride,
                     .accumulate = true});
  }
}

// x in the lanes whose query (first_query + lane) sees key j, else `other`.
static DELINK_INLINE Vec Masked(Vec x, int64_t first_query, int64_t j,
                                int64_t shift, float other) {
  IntVec lane;
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  const int32_t hidden = static_cast<int32_t>(j - shift - first_query);
  return lane < hidden ? Set(other) : x;
}

}  // namespace delink::cpu::DELINK_SIMD
