// What attention's two directions share. A tile is up to kQueryTile queries of
// one head by up to kKeyTile keys. Scores are held transposed, [key][query]:
// statistics per query are then lanes of a vector, and no product needs a
// transposed copy but that of the query tile, made once per tile.
//
// Query i of a tile sees key j of a tile when first(i) <= j <= i + shift. The
// first bound is 0 or less, where a window or a document does not begin in the
// tile. Sums over what is seen stop at the second bound and, but for the rest
// of a few rows, begin at the first; the weights of that rest are 0.
#pragma once

#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/gemm_tile.h"
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"

namespace delink::cpu::DELINK_SIMD {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr double kLn2 = 0.69314718055994530942;
inline constexpr int kTileVecs = kQueryTile / kWidth;

static inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Multiply-adds of the scores, about.
template <typename Args>
static inline int64_t Products(const Args& s) {
  const int64_t seen = s.window > 0 ? Smaller(s.window, s.Tk) : s.Tk;
  return s.B * s.H * s.Tq * seen * s.Dh;
}

// The vector of one head at one token.
template <typename T>
static inline const T* HeadAt(const void* base, HeadStrides strides, int64_t Dh,
                              int64_t b, int64_t t, int64_t h) {
  return static_cast<const T*>(base) + b * strides.batch + t * strides.row +
         h * Dh;
}
template <typename T>
static inline T* HeadAt(void* base, HeadStrides strides, int64_t Dh, int64_t b,
                        int64_t t, int64_t h) {
  return static_cast<T*>(base) + b * strides.batch + t * strides.row + h * Dh;
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
    for (int64_t d = 0; d < Dh; ++d) {
      to[d * kQueryTile + i] = row[d] * factor;
    }
  }
}

// Rows close together: with the strides of a packed qkv matrix they would fall
// into few sets of the cache.
template <typename T>
static inline void PackRows(const T* from, int64_t row_stride, int64_t rows,
                            int64_t Dh, float* to) {
  for (int64_t i = 0; i < rows; ++i, from += row_stride, to += Dh) {
    ForRow(Dh,
           [&](auto load, auto store) DELINK_LAMBDA { store(to, load(from)); });
  }
}

// The rows of a tile as f32: where they are, or in `scratch` [rows][Dh].
struct Rows {
  const float* at;
  int64_t stride;
};
static inline Rows AsF32(const float* from, int64_t row_stride, int64_t,
                         int64_t, float*) {
  return {from, row_stride};
}
static inline Rows AsF32(const BFloat16* from, int64_t row_stride, int64_t rows,
                         int64_t Dh, float* scratch) {
  PackRows(from, row_stride, rows, Dh, scratch);
  return {scratch, Dh};
}

// Where the rows of an output are summed over several tiles: in place, or in
// `scratch` [rows][Dh], from where Finish rounds them.
struct Sums {
  float* at;
  int64_t stride;
};
static inline Sums SumsOf(float* out, int64_t row_stride, int64_t, float*) {
  return {out, row_stride};
}
static inline Sums SumsOf(BFloat16*, int64_t, int64_t Dh, float* scratch) {
  return {scratch, Dh};
}
static inline void Finish(Sums, int64_t, int64_t, float*, int64_t) {}
static inline void Finish(Sums sums, int64_t rows, int64_t Dh, BFloat16* out,
                          int64_t row_stride) {
  for (int64_t i = 0; i < rows; ++i, out += row_stride) {
    const float* sum = sums.at + i * sums.stride;
    ForRow(Dh,
           [&](auto load, auto store) DELINK_LAMBDA { store(out, load(sum)); });
  }
}

// What the queries of a tile see of a tile of keys. Later queries see no
// earlier keys than others do.
struct Band {
  int64_t shift;
  int64_t first_key;
  const int32_t* first_seen;  // [kQueryTile], of all keys

  int64_t First(int64_t i) const { return first_seen[i] - first_key; }
  // Whether one of the queries does not see the first key, though it comes
  // before: then it is worth while to leave out more than the second bound
  // does.
  bool Cut(int64_t queries) const { return First(queries - 1) > 0; }

  // Of a vector of queries i, i + 1, ...: the keys from `begin` to before `end`
  // are seen by some query, from `whole` to before `whole_end` by all. Each is
  // in [0, keys].
  struct Range {
    int64_t begin, whole, whole_end, end;
  };
  Range Keys(int64_t i, int64_t keys) const {
    const auto clamp = [keys](int64_t j) {
      return Larger(0, Smaller(keys, j));
    };
    Range r;
    r.begin = clamp(First(i));
    r.end = clamp(i + kWidth + shift);
    r.whole = Smaller(clamp(First(i + kWidth - 1)), r.end);
    r.whole_end = Larger(clamp(i + shift + 1), r.whole);
    return r;
  }
};

// A tile's keys in blocks, each with the queries that may see one of them: all
// keys that every query sees at once, then a block of registers at a time.
template <typename Visit>
static inline void ForKeyBlocks(Band band, int64_t queries, int64_t keys,
                                Visit visit) {
  const bool cut = band.Cut(queries);
  int64_t end = cut ? 0 : queries;
  for (int64_t j = 0, m = 0; j < keys; j += m) {
    m = !cut && j <= band.shift ? Smaller(band.shift + 1, keys) - j
                                : Smaller(kMaxRows, keys - j);
    while (end < queries && band.First(end) < j + m) ++end;
    const int64_t begin = Larger(j - band.shift, 0);
    if (begin < end) visit(j, m, begin, end);
  }
}

// scores[key][query] = k . q for the pairs that are seen; whole vectors of
// queries that see none of a block of keys are left as they were.
static inline void Scores(const float* k, int64_t row_stride,
                          const float* q_transposed, int64_t queries,
                          int64_t keys, int64_t Dh, Band band, float* scores) {
  ForKeyBlocks(band, queries, keys,
               [&](int64_t j, int64_t m, int64_t begin, int64_t end) {
                 const int64_t first = begin / kWidth * kWidth;
                 const int64_t columns = (end + kWidth - 1) / kWidth * kWidth;
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
               });
}

// out[query][d] (=|+=) weights[key][query]^T values[key][d].
static inline void SumOverKeys(const float* weights, const float* values,
                               int64_t values_stride, int64_t queries,
                               int64_t keys, int64_t Dh, Band band, float* out,
                               int64_t out_stride, bool accumulate) {
  const bool cut = band.Cut(queries);
  for (int64_t i = 0, m = 0; i < queries; i += m) {
    // Once a query sees all keys, so do the rest.
    const bool rest = !cut && i + band.shift + 1 >= keys;
    m = rest ? queries - i : Smaller(kMaxRows, queries - i);
    const int64_t begin = cut ? Smaller(Larger(band.First(i), 0), keys) : 0;
    Multiply<true>({.m = m,
                    .n = Dh,
                    .k = Smaller(keys, i + m + band.shift) - begin,
                    .a = weights + begin * kQueryTile + i,
                    .lda = kQueryTile,
                    .b = values + begin * values_stride,
                    .ldb = values_stride,
                    .c = out + i * out_stride,
                    .ldc = out_stride,
                    .accumulate = accumulate});
  }
}

// out[key][d] += weights[key][query] values[query][d].
static inline void SumOverQueries(const float* weights, const float* values,
                                  int64_t values_stride, int64_t queries,
                                  int64_t keys, int64_t Dh, Band band,
                                  float* out, int64_t out_stride) {
  ForKeyBlocks(band, queries, keys,
               [&](int64_t j, int64_t m, int64_t begin, int64_t end) {
                 Multiply<false>({.m = m,
                                  .n = Dh,
                                  .k = end - begin,
                                  .a = weights + j * kQueryTile + begin,
                                  .lda = kQueryTile,
                                  .b = values + begin * values_stride,
                                  .ldb = values_stride,
                                  .c = out + j * out_stride,
                                  .ldc = out_stride,
                                  .accumulate = true});
               });
}

// x in the lanes whose query (i + lane) sees key j, else `other`.
static DELINK_INLINE Vec Masked(Vec x, int64_t i, int64_t j, Band band,
                                float other) {
  IntVec lane;
  for (int l = 0; l < kWidth; ++l) lane[l] = l;
  const int32_t first = static_cast<int32_t>(j - band.shift - i);
  const int32_t key = static_cast<int32_t>(j + band.first_key);
  IntVec first_seen;
  std::memcpy(&first_seen, band.first_seen + i, sizeof(first_seen));
  const IntVec hidden = (lane < first) | (first_seen > key);
  return hidden ? Set(other) : x;
}

// The keys that the queries of a tile see: of all `Tk` those from `first`,
// where their tiles begin, to before `end`, each query from first_seen on.
struct TileKeys {
  int64_t first, end;
  int32_t first_seen[kQueryTile];  // past the last query that one's
  // Of the queries that begin at key `place` and the keys from first_key on.
  Band At(int64_t place, int64_t first_key) const {
    return {place - first_key, first_key, first_seen};
  }
};
template <typename Args>
static inline TileKeys KeysOf(const Args& s, int64_t b, int64_t first_query,
                              int64_t queries) {
  const int64_t before = s.Tk - s.Tq;
  const int64_t row = s.positions_row > 0 ? s.positions_row : s.Tk;
  const int64_t window = s.window > 0 ? Smaller(s.window, s.Tk) : s.Tk;
  TileKeys keys;
  for (int64_t i = 0; i < kQueryTile; ++i) {
    const int64_t query = first_query + Smaller(i, queries - 1);
    const int64_t behind =
        s.positions != nullptr
            ? Smaller(window - 1, s.positions[b * row + before + query])
            : window - 1;
    keys.first_seen[i] =
        static_cast<int32_t>(Larger(query + before - behind, 0));
  }
  keys.first = keys.first_seen[0];
  // A document's tiles begin with it, those of a window where all tiles do.
  if (s.positions == nullptr) keys.first = keys.first / kKeyTile * kKeyTile;
  keys.end = first_query + before + queries;
  return keys;
}

}  // namespace delink::cpu::DELINK_SIMD
