#include <cstdint>

#include "layers/kernels/cpu/simd/attention_tile.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// One thread's scratch.
struct Scratch {
  float* q;       // [Dh][kQueryTile], scaled so that p = 2^score
  float* scores;  // [kKeyTile][kQueryTile], then probabilities
  float* values;  // [kKeyTile][Dh]
  float* out;     // [kQueryTile][Dh], not yet divided by the sum
  float* keys;    // [kKeyTile][Dh], only for bf16
};

Scratch Divide(float* base, int64_t Dh) {
  Scratch s;
  s.scores = base;
  s.q = s.scores + kQueryTile * kKeyTile;
  s.values = s.q + kQueryTile * Dh;
  s.out = s.values + kKeyTile * Dh;
  s.keys = s.out + kQueryTile * Dh;
  return s;
}

// Per query of a tile, in units of log2.
struct Softmax {
  float max[kQueryTile];
  float sum[kQueryTile];
  float rescale[kQueryTile];  // factor of the sums before this tile
};

// Turns a tile of scores into probabilities relative to the running maximum.
void OnlineSoftmax(float* scores, int64_t queries, int64_t keys, Band band,
                   Softmax* state) {
  const Vec infinity = Set(__builtin_inff());
  for (int64_t i = 0; i < queries; i += kWidth) {
    const Band::Range range = band.Keys(i, keys);
    const Vec before = Load(state->max + i);
    Vec max = before;
    float* column = scores + i;
    const auto mask = [&](int64_t first, int64_t end) {
      for (int64_t j = first; j < end; ++j) {
        const Vec seen = Masked(Load(column + j * kQueryTile), i, j, band,
                                -__builtin_inff());
        Store(column + j * kQueryTile, seen);
        max = Max(max, seen);
      }
    };
    mask(range.begin, range.whole);
    for (int64_t j = range.whole; j < range.whole_end; ++j) {
      max = Max(max, Load(column + j * kQueryTile));
    }
    mask(range.whole_end, range.end);
    // A query that has not seen a key yet: all its probabilities are 0.
    const Vec base = max == -infinity ? Vec{} : max;
    for (int64_t j = 0; j < range.begin; ++j) {
      Store(column + j * kQueryTile, Vec{});
    }
    Vec sum{};
    for (int64_t j = range.begin; j < range.end; ++j) {
      const Vec p = Exp2(Load(column + j * kQueryTile) - base);
      Store(column + j * kQueryTile, p);
      sum += p;
    }
    for (int64_t j = range.end; j < keys; ++j) {
      Store(column + j * kQueryTile, Vec{});
    }
    const Vec rescale = Exp2(before - base);
    Store(state->max + i, max);
    Store(state->rescale + i, rescale);
    Store(state->sum + i, Fma(Load(state->sum + i), rescale, sum));
  }
}

void Scale(float* row, int64_t Dh, float factor) {
  for (int64_t d = 0; d < Dh; ++d) row[d] *= factor;
}

template <typename T>
void ForwardTile(const AttentionForwardArgs& s, int64_t b, int64_t h,
                 int64_t first_query, const Scratch& scratch) {
  const int64_t hkv = h / (s.H / s.Hkv);
  const int64_t queries = Smaller(kQueryTile, s.Tq - first_query);
  const int64_t place = first_query + (s.Tk - s.Tq);
  const TileKeys seen = KeysOf(s, b, first_query, queries);
  static_assert(kQueryTile == kKeyTile);  // so scratch.keys has room for q
  const Rows q = AsF32(HeadAt<T>(s.q, s.q_strides, s.Dh, b, first_query, h),
                       s.q_strides.row, queries, s.Dh, scratch.keys);
  PackTransposed(q.at, q.stride, queries, s.Dh,
                 static_cast<float>(s.scale) * kLog2E, scratch.q);
  Softmax state;
  for (int64_t i = 0; i < kQueryTile; ++i) {
    state.max[i] = -__builtin_inff();
    state.sum[i] = 0.0F;
  }
  for (int64_t first_key = seen.first; first_key < seen.end;
       first_key += kKeyTile) {
    const int64_t keys = Smaller(kKeyTile, seen.end - first_key);
    const Band band = seen.At(place, first_key);
    const Rows k = AsF32(HeadAt<T>(s.k, s.kv_strides, s.Dh, b, first_key, hkv),
                         s.kv_strides.row, keys, s.Dh, scratch.keys);
    Scores(k.at, k.stride, scratch.q, queries, keys, s.Dh, band,
           scratch.scores);
    OnlineSoftmax(scratch.scores, queries, keys, band, &state);
    for (int64_t i = 0; first_key > seen.first && i < queries; ++i) {
      if (state.rescale[i] != 1.0F) {
        Scale(scratch.out + i * s.Dh, s.Dh, state.rescale[i]);
      }
    }
    PackRows(HeadAt<T>(s.v, s.kv_strides, s.Dh, b, first_key, hkv),
             s.kv_strides.row, keys, s.Dh, scratch.values);
    SumOverKeys(scratch.scores, scratch.values, s.Dh, queries, keys, s.Dh, band,
                scratch.out, s.Dh, first_key > seen.first);
  }
  for (int64_t i = 0; i < queries; ++i) {
    T* o = HeadAt<T>(s.o, s.o_strides, s.Dh, b, first_query + i, h);
    const float* sum = scratch.out + i * s.Dh;
    const Vec inverse = Set(1.0F / state.sum[i]);
    ForRow(s.Dh, [&](auto load, auto store)
                     DELINK_LAMBDA { store(o, load(sum) * inverse); });
    if (s.lse != nullptr) {
      static_cast<float*>(s.lse)[(b * s.H + h) * s.Tq + first_query + i] =
          static_cast<float>(state.max[i] * kLn2 + __builtin_log(state.sum[i]));
    }
  }
}

}  // namespace

template <typename T>
void AttentionForward(Stream&, const AttentionForwardArgs& s) {
  const int64_t tiles = (s.Tq + kQueryTile - 1) / kQueryTile;
  const int64_t tasks = s.B * s.H * tiles;
  if (tasks == 0 || s.Dh == 0) return;
  const int64_t bytes = AttentionForwardScratch<T>(s, 1);
  const int most = TeamFor(s.scratch_bytes, bytes);
  [[maybe_unused]] const int team = Products(s) > kParallelProducts ? most : 1;
  char* scratch = static_cast<char*>(s.scratch);
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (int64_t task = 0; task < tasks; ++task) {
    float* mine = reinterpret_cast<float*>(scratch + ThreadIndex() * bytes);
    // The longest tiles first.
    const int64_t tile = tiles - 1 - task % tiles;
    const int64_t head = task / tiles;
    ForwardTile<T>(s, head / s.H, head % s.H, tile * kQueryTile,
                   Divide(mine, s.Dh));
  }
}

template void AttentionForward<float>(Stream&, const AttentionForwardArgs&);
template void AttentionForward<BFloat16>(Stream&, const AttentionForwardArgs&);

}  // namespace delink::cpu::DELINK_SIMD
