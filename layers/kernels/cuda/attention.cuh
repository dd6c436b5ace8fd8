// Causal attention with an online softmax (Dao et al., "FlashAttention", 2022)
// in float, for any width of heads. It serves f32 and all calls that cuDNN does
// not take. A block has 64 queries of one head, or 64 keys of one key/value
// head, and sums the blockIdx.y-th kColumns columns of the result. It computes
// its own scores, so nothing of the size of the scores is ever in memory. With
// s = log2(e) scale q.k and l = log2(e) lse, p = 2^(s - l):
//   dv += p do,  ds = p (do.v - delta),  dq += scale ds k,  dk += scale ds q
// where delta = o.do. One block alone sums a gradient, in order.
#pragma once

#include "layers/kernels/cuda/attention_tile.cuh"

namespace delink::cuda {

// The rows of a block: `count` rows of a head from `first` on. Blocks with the
// most work start first: the last queries, and the first keys.
struct TilePlace {
  int64_t b, h;
  int first, count;
  int64_t column;  // its first column
  int width;       // number of columns, at most kColumns
};
template <int kColumns>
__device__ TilePlace PlaceOf(int64_t heads, int64_t samples, int64_t T,
                             int64_t Dh, bool last_first) {
  const int64_t tiles = (T + kTile - 1) / kTile;
  const int64_t order = blockIdx.x / (heads * samples);
  const int64_t head = blockIdx.x % (heads * samples);
  const int64_t first = (last_first ? tiles - 1 - order : order) * kTile;
  const int64_t column = int64_t{blockIdx.y} * kColumns;
  return {.b = head / heads,
          .h = head % heads,
          .first = static_cast<int>(first),
          .count = static_cast<int>(Smaller<int64_t>(kTile, T - first)),
          .column = column,
          .width = static_cast<int>(Smaller<int64_t>(kColumns, Dh - column))};
}

// For a thread's rows, in units of log2; `sum` is over its own columns only.
struct OnlineSoftmax {
  float max[kEach];
  float sum[kEach];
};

// The first key that each of a thread's rows, which are queries, sees. Rows
// past the last are treated like the last.
__device__ inline void FirstKeys(const Band& band, const TilePlace& at,
                                 int (&first_seen)[kEach]) {
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    first_seen[r] =
        band.First(at.first + Smaller(kEach * ThreadY() + r, at.count - 1));
  }
}

// Turns scores into probabilities relative to the running maximum, and sets
// rescale[r] to the factor of the earlier sums.
__device__ inline void NextWeights(const Band& band, int first_query,
                                   const int (&first_seen)[kEach],
                                   int first_key, float scale,
                                   float (&scores)[kEach][kEach],
                                   OnlineSoftmax& state,
                                   float (&rescale)[kEach]) {
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const int query = first_query + kEach * ThreadY() + r;
    float top = -INFINITY;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      const int key = first_key + ThreadX() + kSide * c;
      const bool seen = key <= query + band.offset && key >= first_seen[r];
      scores[r][c] = seen ? scores[r][c] * scale : -INFINITY;
      top = fmaxf(top, scores[r][c]);
    }
    top = fmaxf(state.max[r], MaxAcross(top));
    // A query that has not seen a key yet: all its probabilities are 0.
    const float base = top == -INFINITY ? 0.0F : top;
    rescale[r] = exp2f(state.max[r] - base);
    state.max[r] = top;
    state.sum[r] *= rescale[r];
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      scores[r][c] = exp2f(scores[r][c] - base);
      state.sum[r] += scores[r][c];
    }
  }
}

template <typename T, int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, kColumns <= 64 ? 2 : 1)
    AttentionForwardKernel(AttentionForwardArgs s, float scale, bool packed) {
  __shared__ AttentionShared shared;
  const int Dh = static_cast<int>(s.Dh);
  const TilePlace at = PlaceOf<kColumns>(s.H, s.B, s.Tq, Dh, true);
  const int64_t hkv = at.h / (s.H / s.Hkv);
  const HeadRows<T> q = {
      HeadAt<const T>(s.q, s.q_strides, Dh, at.b, at.first, at.h),
      s.q_strides.row, at.count, packed};
  const Band band(s, at.b);
  const Range keys = KeysOf(band, at.first, at.count);
  int first_seen[kEach];
  FirstKeys(band, at, first_seen);
  float out[kEach][kColumns / kSide] = {};
  OnlineSoftmax state;
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    state.max[r] = -INFINITY;
    state.sum[r] = 0.0F;
  }
  for (int key = keys.begin; key < keys.end; key += kTile) {
    const int count = Smaller(kTile, keys.end - key);
    const HeadRows<T> k = {
        HeadAt<const T>(s.k, s.kv_strides, Dh, at.b, key, hkv),
        s.kv_strides.row, count, packed};
    const HeadRows<T> v = {
        HeadAt<const T>(s.v, s.kv_strides, Dh, at.b, key, hkv),
        s.kv_strides.row, count, packed};
    float scores[kEach][kEach] = {}, rescale[kEach];
    AddScores(q, k, Dh, shared, scores);
    NextWeights(band, at.first, first_seen, key, scale, scores, state, rescale);
    StoreWeights(scores, shared);
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
#pragma unroll
      for (int i = 0; i < kColumns / kSide; ++i) out[r][i] *= rescale[r];
    }
    AddWeighted<kColumns>(at.count, v, at.column, at.width, shared, out);
  }
  float inverse[kEach];
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const float sum = SumAcross(state.sum[r]);
    inverse[r] = 1.0F / sum;
    const int row = kEach * ThreadY() + r;
    if (s.lse != nullptr && blockIdx.y == 0 && ThreadX() == 0 &&
        row < at.count) {
      static_cast<float*>(s.lse)[(at.b * s.H + at.h) * s.Tq + at.first + row] =
          (state.max[r] + log2f(sum)) * kLn2;
    }
  }
  StoreRows<kColumns>(out, inverse, at.count, s.o_strides.row, at.column,
                      at.width,
                      HeadAt<T>(s.o, s.o_strides, Dh, at.b, at.first, at.h));
}

// Loads the lse of the tile's queries, and computes o.do, also to memory.
template <typename T>
__device__ void LoadStatistics(const AttentionBackwardArgs& s,
                               const TilePlace& at, AttentionShared& shared) {
  const int64_t statistics = (at.b * s.H + at.h) * s.Tq + at.first;
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    const int row = kEach * ThreadY() + r;
    float sum = 0.0F;
    if (row < at.count) {
      const int64_t t = at.first + row;
      const T* o = HeadAt<const T>(s.o, s.o_strides, s.Dh, at.b, t, at.h);
      const T* d_o = HeadAt<const T>(s.d_o, s.o_strides, s.Dh, at.b, t, at.h);
      for (int d = ThreadX(); d < s.Dh; d += kSide) {
        sum += ToFloat(o[d]) * ToFloat(d_o[d]);
      }
    }
    sum = SumAcross(sum);
    if (ThreadX() != 0) continue;
    const bool there = row < at.count;
    shared.delta[row] = sum;
    shared.lse[row] =
        there ? static_cast<const float*>(s.lse)[statistics + row] * kLog2E
              : 0.0F;
    if (there && blockIdx.y == 0) {
      static_cast<float*>(s.delta)[statistics + row] = sum;
    }
  }
}

// For a tile of queries: dq, and delta for AttentionBackwardKeysKernel.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, kColumns <= 64 ? 2 : 1)
    AttentionBackwardQueriesKernel(AttentionBackwardArgs s, float scale,
                                   bool packed) {
  __shared__ AttentionShared shared;
  const int Dh = static_cast<int>(s.Dh);
  const TilePlace at = PlaceOf<kColumns>(s.H, s.B, s.Tq, Dh, true);
  const int64_t hkv = at.h / (s.H / s.Hkv);
  const HeadRows<T> q = {
      HeadAt<const T>(s.q, s.q_strides, Dh, at.b, at.first, at.h),
      s.q_strides.row, at.count, packed};
  const HeadRows<T> d_o = {
      HeadAt<const T>(s.d_o, s.o_strides, Dh, at.b, at.first, at.h),
      s.o_strides.row, at.count, packed};
  const float to_log2 = scale * kLog2E;
  LoadStatistics<T>(s, at, shared);
  const Band band(s, at.b);
  const Range keys = KeysOf(band, at.first, at.count);
  int first_seen[kEach];
  FirstKeys(band, at, first_seen);
  float dq[kEach][kColumns / kSide] = {};
  for (int key = keys.begin; key < keys.end; key += kTile) {
    const int count = Smaller(kTile, keys.end - key);
    const HeadRows<T> k = {
        HeadAt<const T>(s.k, s.kv_strides, Dh, at.b, key, hkv),
        s.kv_strides.row, count, packed};
    const HeadRows<T> v = {
        HeadAt<const T>(s.v, s.kv_strides, Dh, at.b, key, hkv),
        s.kv_strides.row, count, packed};
    float scores[kEach][kEach] = {}, ds[kEach][kEach] = {};
    AddScores(q, k, Dh, shared, scores);
    AddScores(d_o, v, Dh, shared, ds);
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const int row = kEach * ThreadY() + r;
      const int place = at.first + row + band.offset;
      const float l = shared.lse[row], delta = shared.delta[row];
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const int seen_key = key + ThreadX() + kSide * c;
        const bool seen = seen_key <= place && seen_key >= first_seen[r];
        const float p = exp2f(scores[r][c] * to_log2 - l);
        ds[r][c] = seen ? p * (ds[r][c] - delta) : 0.0F;
      }
    }
    StoreWeights(ds, shared);
    AddWeighted<kColumns>(at.count, k, at.column, at.width, shared, dq);
  }
  const float factor[kEach] = {scale, scale, scale, scale};
  StoreRows<kColumns>(dq, factor, at.count, s.q_strides.row, at.column,
                      at.width,
                      HeadAt<T>(s.dq, s.q_strides, Dh, at.b, at.first, at.h));
}

// Turns the scores of keys with queries, and v.do, into p and ds.
__device__ inline void Transposed(const Band& band, const float* lse,
                                  const float* delta, int first_query,
                                  int end_query, int first_key, float to_log2,
                                  float (&p)[kEach][kEach],
                                  float (&ds)[kEach][kEach]) {
#pragma unroll
  for (int c = 0; c < kEach; ++c) {
    const int query = first_query + ThreadX() + kSide * c;
    const bool there = query < end_query;
    const float l = there ? lse[query] * kLog2E : 0.0F;
    const float to_subtract = there ? delta[query] : 0.0F;
    const int first_seen = there ? band.First(query) : 0;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const int key = first_key + kEach * ThreadY() + r;
      const bool seen =
          there && key <= query + band.offset && key >= first_seen;
      p[r][c] = seen ? exp2f(p[r][c] * to_log2 - l) : 0.0F;
      ds[r][c] = seen ? p[r][c] * (ds[r][c] - to_subtract) : 0.0F;
    }
  }
}

// For a tile of keys: dk and dv, over all query heads of their group.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, kColumns <= 64 ? 2 : 1)
    AttentionBackwardKeysKernel(AttentionBackwardArgs s, float scale,
                                bool packed) {
  __shared__ AttentionShared shared;
  const int Dh = static_cast<int>(s.Dh);
  const TilePlace at = PlaceOf<kColumns>(s.Hkv, s.B, s.Tk, Dh, false);
  const HeadRows<T> k = {
      HeadAt<const T>(s.k, s.kv_strides, Dh, at.b, at.first, at.h),
      s.kv_strides.row, at.count, packed};
  const HeadRows<T> v = {
      HeadAt<const T>(s.v, s.kv_strides, Dh, at.b, at.first, at.h),
      s.kv_strides.row, at.count, packed};
  const Band band(s, at.b);
  const Range queries =
      QueriesOf(band, at.first, at.count, static_cast<int>(s.Tq));
  const int last_key = at.first + at.count - 1;
  const int64_t group = s.H / s.Hkv;
  float dk[kEach][kColumns / kSide] = {}, dv[kEach][kColumns / kSide] = {};
  for (int64_t h = at.h * group; h < (at.h + 1) * group; ++h) {
    const int64_t statistics = (at.b * s.H + h) * s.Tq;
    for (int query = queries.begin; query < queries.end; query += kTile) {
      if (band.First(query) > last_key) break;
      const int count = Smaller(kTile, queries.end - query);
      const HeadRows<T> q = {
          HeadAt<const T>(s.q, s.q_strides, Dh, at.b, query, h),
          s.q_strides.row, count, packed};
      const HeadRows<T> d_o = {
          HeadAt<const T>(s.d_o, s.o_strides, Dh, at.b, query, h),
          s.o_strides.row, count, packed};
      float p[kEach][kEach] = {}, ds[kEach][kEach] = {};
      AddScores(k, q, Dh, shared, p);
      AddScores(v, d_o, Dh, shared, ds);
      Transposed(band, static_cast<const float*>(s.lse) + statistics,
                 static_cast<const float*>(s.delta) + statistics, query,
                 queries.end, at.first, scale * kLog2E, p, ds);
      StoreWeights(p, shared);
      AddWeighted<kColumns>(at.count, d_o, at.column, at.width, shared, dv);
      __syncthreads();
      StoreWeights(ds, shared);
      AddWeighted<kColumns>(at.count, q, at.column, at.width, shared, dk);
    }
  }
  const float ones[kEach] = {1.0F, 1.0F, 1.0F, 1.0F};
  const float factor[kEach] = {scale, scale, scale, scale};
  StoreRows<kColumns>(dk, factor, at.count, s.kv_strides.row, at.column,
                      at.width,
                      HeadAt<T>(s.dk, s.kv_strides, Dh, at.b, at.first, at.h));
  StoreRows<kColumns>(dv, ones, at.count, s.kv_strides.row, at.column, at.width,
                      HeadAt<T>(s.dv, s.kv_strides, Dh, at.b, at.first, at.h));
}

}  // namespace delink::cuda
