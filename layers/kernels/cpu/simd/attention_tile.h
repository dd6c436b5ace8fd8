// Shared code of attention's forward and backward. A tile is up to kQueryTile
// queries of one head by up to kKeyTile keys. Scores are stored transposed,
// [key][query], so the statistics of queries are lanes of a vector, and only
// the query tile needs a transposed copy, made once per tile.
//
// Query i of a tile sees key j of a tile if first(i) <= j <= i + shift. The
// first bound is 0 or less if no window or document begins in the tile. Sums
// are computed for a few rows at a time, over everything that any of these rows
// sees; the weights of hidden pairs are 0.
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

// About the number of multiply-adds of the scores.
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

// Copies rows close together, since with the strides of a packed qkv matrix
// they would use few sets of the cache.
template <typename T>
static inline void PackRows(const T* from, int64_t row_stride, int64_t rows,
                            int64_t Dh, float* to) {
  for (int64_t i = 0; i < rows; ++i, from += row_stride, to += Dh) {
    ForRow(Dh,
           [&](auto load, auto store) DELINK_LAMBDA { store(to, load(from)); });
  }
}

// The rows of a tile as f32: in place, or copied to `scratch` [rows][Dh].
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

// The rows of an output while they are summed over several tiles: in place, or
// in `scratch` [rows][Dh], from which Finish rounds them.
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

// The keys of a tile that the queries of a tile see. The first key that a query
// sees never decreases from one query to the next.
struct Band {
  int64_t shift;
  int64_t first_key;
  const int32_t* first_seen;  // [kQueryTile], of all keys

  int64_t First(int64_t i) const { return first_seen[i] - first_key; }
  // Whether a window or document hides the first key from one of the queries.
  // Only then does it pay to apply the first bound too.
  bool Cut(int64_t queries) const { return First(queries - 1) > 0; }

  // For a vector of queries i, i + 1, ...: some query sees the keys
  // [begin, end), and all queries see [whole, whole_end). All bounds are in
  // [0, keys].
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

// Visits a tile's keys in blocks, each with the queries that may see one of its
// keys: first all keys that every query sees, then a few rows at a time.
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

// scores[key][query] = k . q for the visible pairs. Vectors of queries of which
// none sees a block of keys are not changed.
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
    // If a query sees all keys, so do all later ones.
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

// The keys that the queries of a tile see: [first, end) of all `Tk`, where
// `first` begins a tile of keys; each query sees keys from first_seen on.
struct TileKeys {
  int64_t first, end;
  int32_t first_seen[kQueryTile];  // past the last query: the last one's
  // For a tile of queries, the first of which has the place of key `place`, and
  // a tile of keys from first_key on.
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
  // With documents, tiles of keys begin at the first visible key; without, at
  // multiples of kKeyTile.
  if (s.positions == nullptr) keys.first = keys.first / kKeyTile * kKeyTile;
  keys.end = first_query + before + queries;
  return keys;
}

}  // namespace delink::cpu::DELINK_SIMD
