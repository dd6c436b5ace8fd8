// One thread processes a key/value head and all query heads that read it, tile
// by tile in a fixed order, so it sums dk and dv without atomics.
#include <cstdint>

#include "layers/kernels/cpu/simd/attention_tile.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// One thread's scratch.
struct Scratch {
  float* p;               // [kKeyTile][kQueryTile] scores, then probabilities
  float* ds;              // [kKeyTile][kQueryTile] gradients of scaled scores
  float* q;               // [kQueryTile][Dh]
  float* d_o;             // [kQueryTile][Dh]
  float* q_transposed;    // [Dh][kQueryTile], scaled so that p = 2^(score - l)
  float* d_o_transposed;  // [Dh][kQueryTile]
  float* k;               // [kKeyTile][Dh]
  // Only for bf16:
  float* v;   // [kKeyTile][Dh]
  float* dq;  // [kQueryTile][Dh]
  float* dk;  // [Tk][Dh]
  float* dv;  // [Tk][Dh]
};

Scratch Divide(float* base, int64_t Dh, int64_t Tk) {
  const int64_t tile = kQueryTile * Dh;
  Scratch s;
  s.p = base;
  s.ds = s.p + kQueryTile * kKeyTile;
  s.q_transposed = s.ds + kQueryTile * kKeyTile;
  s.d_o_transposed = s.q_transposed + tile;
  s.q = s.d_o_transposed + tile;
  s.d_o = s.q + tile;
  s.k = s.d_o + tile;
  s.v = s.k + kKeyTile * Dh;
  s.dq = s.v + kKeyTile * Dh;
  s.dk = s.dq + tile;
  s.dv = s.dk + Tk * Dh;
  return s;
}

// Per query of a tile.
struct Statistics {
  float lse[kQueryTile];  // in units of log2
  float delta[kQueryTile];
};

// Turns scores and v.do into probabilities and scaled gradients of the scores.
void SoftmaxBackward(float* p, float* ds, const Statistics& rows,
                     int64_t queries, int64_t keys, Band band, float scale) {
  for (int64_t i = 0; i < queries; i += kWidth) {
    const Vec lse = Load(rows.lse + i);
    const Vec delta = Load(rows.delta + i);
    const Band::Range range = band.Keys(i, keys);
    const auto clear = [&](int64_t first, int64_t end) {
      for (int64_t j = first; j < end; ++j) {
        Store(p + j * kQueryTile + i, Vec{});
        Store(ds + j * kQueryTile + i, Vec{});
      }
    };
    clear(0, range.begin);
    for (int64_t j = range.begin; j < range.end; ++j) {
      float* at_p = p + j * kQueryTile + i;
      float* at_ds = ds + j * kQueryTile + i;
      Vec probability = Exp2(Load(at_p) - lse);
      Vec gradient = probability * (Load(at_ds) - delta) * scale;
      if (j < range.whole || j >= range.whole_end) {
        probability = Masked(probability, i, j, band, 0.0F);
        gradient = Masked(gradient, i, j, band, 0.0F);
      }
      Store(at_p, probability);
      Store(at_ds, gradient);
    }
    clear(range.end, keys);
  }
}

// delta = o.do, also stored in the caller's buffer.
template <typename T>
void LoadStatistics(const AttentionBackwardArgs& s, int64_t b, int64_t h,
                    int64_t first_query, int64_t queries, Statistics* rows) {
  const int64_t base = (b * s.H + h) * s.Tq + first_query;
  const float* lse = static_cast<const float*>(s.lse) + base;
  float* delta = static_cast<float*>(s.delta) + base;
  for (int64_t i = 0; i < kQueryTile; ++i) {
    rows->lse[i] = 0.0F;
    rows->delta[i] = 0.0F;
    if (i >= queries) continue;
    const T* o = HeadAt<T>(s.o, s.o_strides, s.Dh, b, first_query + i, h);
    const T* d_o = HeadAt<T>(s.d_o, s.o_strides, s.Dh, b, first_query + i, h);
    Vec sum{};
    ForRow(s.Dh,
           [&](auto load, auto) DELINK_LAMBDA { sum += load(o) * load(d_o); });
    delta[i] = ReduceAdd(sum);
    rows->lse[i] = lse[i] * kLog2E;
    rows->delta[i] = delta[i];
  }
}

// The queries of one tile: writes their dq, adds to dk and dv.
template <typename T>
void BackwardTile(const AttentionBackwardArgs& s, int64_t b, int64_t h,
                  int64_t first_query, Sums dk, Sums dv,
                  const Scratch& scratch) {
  const int64_t hkv = h / (s.H / s.Hkv);
  const int64_t queries = Smaller(kQueryTile, s.Tq - first_query);
  const int64_t place = first_query + (s.Tk - s.Tq);
  const TileKeys seen = KeysOf(s, b, first_query, queries);
  const float scale = static_cast<float>(s.scale);
  const T* q = HeadAt<T>(s.q, s.q_strides, s.Dh, b, first_query, h);
  const T* d_o = HeadAt<T>(s.d_o, s.o_strides, s.Dh, b, first_query, h);
  T* out = HeadAt<T>(s.dq, s.q_strides, s.Dh, b, first_query, h);
  const Sums dq = SumsOf(out, s.q_strides.row, s.Dh, scratch.dq);
  Statistics rows;
  LoadStatistics<T>(s, b, h, first_query, queries, &rows);
  PackRows(q, s.q_strides.row, queries, s.Dh, scratch.q);
  PackRows(d_o, s.o_strides.row, queries, s.Dh, scratch.d_o);
  PackTransposed(scratch.q, s.Dh, queries, s.Dh, scale * kLog2E,
                 scratch.q_transposed);
  PackTransposed(scratch.d_o, s.Dh, queries, s.Dh, 1.0F,
                 scratch.d_o_transposed);
  const int64_t row = s.kv_strides.row;
  for (int64_t first_key = seen.first; first_key < seen.end;
       first_key += kKeyTile) {
    const int64_t keys = Smaller(kKeyTile, seen.end - first_key);
    const Band band = seen.At(place, first_key);
    PackRows(HeadAt<T>(s.k, s.kv_strides, s.Dh, b, first_key, hkv), row, keys,
             s.Dh, scratch.k);
    const Rows v = AsF32(HeadAt<T>(s.v, s.kv_strides, s.Dh, b, first_key, hkv),
                         row, keys, s.Dh, scratch.v);
    Scores(scratch.k, s.Dh, scratch.q_transposed, queries, keys, s.Dh, band,
           scratch.p);
    Scores(v.at, v.stride, scratch.d_o_transposed, queries, keys, s.Dh, band,
           scratch.ds);
    SoftmaxBackward(scratch.p, scratch.ds, rows, queries, keys, band, scale);
    SumOverQueries(scratch.p, scratch.d_o, s.Dh, queries, keys, s.Dh, band,
                   dv.at + first_key * dv.stride, dv.stride);
    SumOverQueries(scratch.ds, scratch.q, s.Dh, queries, keys, s.Dh, band,
                   dk.at + first_key * dk.stride, dk.stride);
    SumOverKeys(scratch.ds, scratch.k, s.Dh, queries, keys, s.Dh, band, dq.at,
                dq.stride, first_key > seen.first);
  }
  Finish(dq, queries, s.Dh, out, s.q_strides.row);
}

template <typename T>
void BackwardHead(const AttentionBackwardArgs& s, int64_t b, int64_t hkv,
                  const Scratch& scratch) {
  const int64_t group = s.H / s.Hkv, row = s.kv_strides.row;
  T* dk_out = HeadAt<T>(s.dk, s.kv_strides, s.Dh, b, 0, hkv);
  T* dv_out = HeadAt<T>(s.dv, s.kv_strides, s.Dh, b, 0, hkv);
  const Sums dk = SumsOf(dk_out, row, s.Dh, scratch.dk);
  const Sums dv = SumsOf(dv_out, row, s.Dh, scratch.dv);
  for (int64_t j = 0; j < s.Tk; ++j) {
    std::memset(dk.at + j * dk.stride, 0, s.Dh * sizeof(float));
    std::memset(dv.at + j * dv.stride, 0, s.Dh * sizeof(float));
  }
  for (int64_t h = hkv * group; h < (hkv + 1) * group; ++h) {
    for (int64_t i = 0; i < s.Tq; i += kQueryTile) {
      BackwardTile<T>(s, b, h, i, dk, dv, scratch);
    }
  }
  Finish(dk, s.Tk, s.Dh, dk_out, row);
  Finish(dv, s.Tk, s.Dh, dv_out, row);
}

}  // namespace

template <typename T>
void AttentionBackward(Stream&, const AttentionBackwardArgs& s) {
  const int64_t tasks = s.B * s.Hkv;
  if (tasks == 0 || s.Dh == 0) return;
  const int64_t bytes = AttentionBackwardScratch<T>(s, 1);
  const int most = TeamFor(s.scratch_bytes, bytes);
  [[maybe_unused]] const int team = Products(s) > kParallelProducts ? most : 1;
  char* scratch = static_cast<char*>(s.scratch);
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (int64_t task = 0; task < tasks; ++task) {
    float* mine = reinterpret_cast<float*>(scratch + ThreadIndex() * bytes);
    BackwardHead<T>(s, task / s.Hkv, task % s.Hkv, Divide(mine, s.Dh, s.Tk));
  }
}

template void AttentionBackward<float>(Stream&, const AttentionBackwardArgs&);
template void AttentionBackward<BFloat16>(Stream&,
                                          const AttentionBackwardArgs&);

}  // namespace delink::cpu::DELINK_SIMD
