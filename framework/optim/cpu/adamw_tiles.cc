// AdamW for all forms of parameters and moments, a tile at a time: each tile,
// as large as an 8-bit block, is converted to floats, updated, rounded and
// stored.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "framework/module/state_layout.h"
#include "framework/optim/cpu/adamw.h"
#include "framework/optim/cpu/masters.h"
#include "framework/optim/cpu/traffic.h"
#include "framework/tensor/block8.h"

namespace delink::cpu {
namespace {

// Streams of the random numbers for rounding (AdamWArgs).
constexpr uint64_t kStreamOfM = 1, kStreamOfV = 2;
static_assert(kTile == kBlock8);

// Stores n values of a tile in a plane. Rounding writes to the tile first, and
// is therefore independent of the kind of store.
struct Stores {
  Instructions set;
  bool past_caches;

  template <typename T>
  [[gnu::always_inline]] void operator()(void* plane, int64_t at, int64_t n,
                                         const T* values) const {
    T* const to = static_cast<T*>(plane) + at;
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
    if (past_caches) {
      CopyPastCaches(set, to, values, bytes);
    } else {
      std::memcpy(to, values, static_cast<size_t>(bytes));
    }
  }
};

// One moment: its values, its scales, and the stream of numbers that round it.
struct Moment {
  StateStorage form;
  void* values;
  float* scales;
  uint64_t stream;
};

// `block`: the tile's block, counted from that of element 0.
template <bool kSigned>
[[gnu::always_inline]] inline void LoadMoment(const Moment& from, int64_t at,
                                              int64_t block, int64_t n,
                                              float* to) {
  switch (from.form) {
    case StateStorage::kExact:
      std::memcpy(to, static_cast<const float*>(from.values) + at,
                  static_cast<size_t>(n) * sizeof(float));
      return;
    case StateStorage::kBF16:
      return Widen(static_cast<const uint16_t*>(from.values) + at, n, to);
    case StateStorage::kBlock8:
      break;
  }
  const auto* const codes = static_cast<const uint8_t*>(from.values) + at;
  const float* const fractions =
      kSigned ? kSignedFractions8.data() : kUnsignedFractions8.data();
  const float scale = from.scales[block];
  for (int64_t i = 0; i < n; ++i) to[i] = fractions[codes[i]] * scale;
}

template <bool kSigned>
[[gnu::always_inline]] inline void StoreMoment(const AdamWArgs& a,
                                               const Moment& to, int64_t at,
                                               int64_t block, int64_t n,
                                               const float* from,
                                               Stores store) {
  switch (to.form) {
    case StateStorage::kExact:
      return store(to.values, at, n, from);
    case StateStorage::kBF16:
      return RoundTile(a, at, to.stream, n, from, to.values, store);
    case StateStorage::kBlock8:
      break;
  }
  // The largest magnitude as bits: integers have the same order, and compilers
  // may compare them in any sequence.
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(from[i]) & 0x7FFFFFFFU);
  }
  const auto scale = std::bit_cast<float>(largest);
  const float inverse = Inverse8(scale);
  uint8_t codes[kTile];
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = Code8<kSigned>(from[i] * inverse);
  }
  store(to.values, at, n, codes);
  to.scales[block] = inverse > 0 ? scale : 0.0F;
}

// A Body over positions, which count from the begin of element 0's block, so
// that tiles are blocks.
struct Tiles {
  AdamWArgs a;
  AdamWStep<float> step;
  Stores store;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    for (int64_t tile = begin; tile < end; tile += kTile) {
      const int64_t at = std::max<int64_t>(tile - a.in_block, 0);
      const int64_t n = std::min(tile + kTile, end) - a.in_block - at;
      if (n <= 0) continue;
      if (a.moments == StateStorage::kBlock8 || a.master == MasterForm::kNone) {
        Update(at, tile / kTile, n);
      } else if (a.moments == StateStorage::kExact) {
        UpdateByMaster<float>(at, n);
      } else {
        UpdateByMaster<uint16_t>(at, n);
      }
    }
    if (store.past_caches) PastCachesDone();
  }

  // Prefetches the planes of the n elements that begin kAhead after `at`.
  [[gnu::always_inline]] void AskAhead(int64_t at, int64_t n) const {
    const int64_t ahead = at + kAhead;
    if (ahead + n > a.n) return;
    AskFor(a.g, ahead, n, a.bf16_g ? 2 : 4);
    if (a.master == MasterForm::kWhole) AskFor(a.p, ahead, n, 4);
    if (a.master != MasterForm::kWhole) AskFor(a.w, ahead, n, 2);
    if (a.master == MasterForm::kSplit) AskFor(a.low, ahead, n, 2);
    const int64_t width = SizeOf(a.moments, DType::kF32);
    AskFor(a.m, ahead, n, width);
    AskFor(a.v, ahead, n, width);
  }

  template <typename M>
  [[gnu::always_inline]] void UpdateByMaster(int64_t at, int64_t n) const {
    if (a.master == MasterForm::kWhole) {
      store.past_caches ? UpdateAtOnce<MasterForm::kWhole, M, true>(at, n)
                        : UpdateAtOnce<MasterForm::kWhole, M, false>(at, n);
    } else {
      store.past_caches ? UpdateAtOnce<MasterForm::kSplit, M, true>(at, n)
                        : UpdateAtOnce<MasterForm::kSplit, M, false>(at, n);
    }
  }

  // For 32-bit masters and moments M, float or bf16: one loop reads the planes
  // and writes to them or, with non-temporal stores, to a tile. With these a
  // whole tile is prefetched and stored at once; without them a few lines are
  // prefetched while others are computed.
  template <MasterForm kMaster, typename M, bool kPast>
  [[gnu::always_inline]] void UpdateAtOnce(int64_t at, int64_t n) const {
    constexpr bool kSplit = kMaster == MasterForm::kSplit;
    constexpr bool kRounds = std::is_same_v<M, uint16_t>;
    const AdamWStep<float> s = step;
    const Gradient<float> gradient = {a.g, a.bf16_g};
    constexpr int64_t kAtOnce = kPast ? kTile : kAskedAtOnce;
    alignas(64) float g[kTile], tile_p[kTile];
    alignas(64) M tile_m[kTile], tile_v[kTile];
    alignas(64) uint16_t tile_w[kTile], tile_low[kTile];
    alignas(64) uint16_t random_m[kTile], random_v[kTile];
    if constexpr (kRounds) {
      RandomHalves(store.set, a, at, kStreamOfM, n, random_m);
      RandomHalves(store.set, a, at, kStreamOfV, n, random_v);
    }
    gradient.Load(at, n, g, std::identity());
    float* const old_p = kSplit ? nullptr : static_cast<float*>(a.p) + at;
    auto* const old_w = static_cast<uint16_t*>(a.w) + at;
    uint16_t* const old_low = kSplit ? a.low + at : nullptr;
    M* const old_m = static_cast<M*>(a.m) + at;
    M* const old_v = static_cast<M*>(a.v) + at;
    float* const p = kPast ? tile_p : old_p;
    uint16_t* const w = kPast || a.w == nullptr ? tile_w : old_w;
    uint16_t* const low = kPast ? tile_low : old_low;
    M* const m = kPast ? tile_m : old_m;
    M* const v = kPast ? tile_v : old_v;
    for (int64_t begin = 0; begin < n; begin += kAtOnce) {
      AskAhead(at + begin, kAtOnce);
      const int64_t end = std::min(begin + kAtOnce, n);
      // An element reads only its own values of the planes that are written.
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) {
        float pi, mi = Wide(old_m[i]), vi = Wide(old_v[i]);
        if constexpr (kSplit) {
          pi = SplitMaster{old_w[i], old_low[i]}.Value();
        } else {
          pi = old_p[i];
        }
        s(pi, g[i], mi, vi);
        if constexpr (kRounds) {
          m[i] = RoundStochastically(mi, random_m[i]);
          v[i] = RoundStochastically(vi, random_v[i]);
        } else {
          m[i] = mi;
          v[i] = vi;
        }
        if constexpr (kSplit) {
          const SplitMaster split = Split(pi);
          w[i] = split.weight;
          low[i] = split.low;
        } else {
          p[i] = pi;
          w[i] = Rounded(pi).bits;
        }
      }
    }
    if (!kPast) return;
    store(a.m, at, n, m);
    store(a.v, at, n, v);
    if (kSplit) store(a.low, at, n, low);
    if (!kSplit) store(a.p, at, n, p);
    if (a.w != nullptr) store(a.w, at, n, w);
  }

  [[gnu::always_inline]] void Update(int64_t at, int64_t block,
                                     int64_t n) const {
    AskAhead(at, kTile);
    const Moment first{a.moments, a.m, a.m_scales, kStreamOfM};
    const Moment second{a.moments, a.v, a.v_scales, kStreamOfV};
    const AdamWStep<float> s = step;
    const Gradient<float> gradient = {a.g, a.bf16_g};
    float g[kTile], p[kTile], m[kTile], v[kTile];
    gradient.Load(at, n, g, std::identity());
    LoadParams(a, at, n, p);
    LoadMoment<true>(first, at, block, n, m);
    LoadMoment<false>(second, at, block, n, v);
    for (int64_t i = 0; i < n; ++i) s(p[i], g[i], m[i], v[i]);
    StoreParams(a, at, n, p, store);
    StoreMoment<true>(a, first, at, block, n, m, store);
    StoreMoment<false>(a, second, at, block, n, v, store);
  }
};

}  // namespace

void AdamWInTiles(const Way& way, const AdamWArgs& a) {
  const ElementNumbers& to = a.numbers;
  DELINK_CHECK((to.first | to.columns | to.pitch | to.in_row) % 8 == 0)
      << to.first << " + " << to.in_row << ", " << to.columns << " of "
      << to.pitch;
  RunElementsBy(
      way.set, way.pool,
      Tiles{.a = a,
            .step = AdamWStep<float>(a),
            .store = {.set = way.set,
                      .past_caches = way.traffic == Traffic::kPastCaches}},
      a.in_block + a.n);
}

}  // namespace delink::cpu
