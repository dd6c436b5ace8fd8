// Philox4x32-10 (framework/base/rng.h) on as many counters at once as there are
// 64-bit lanes, so that each round's products are complete. A word is the lower
// half of a lane. The upper half is never read, so it need not be cleared.
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kLanes = kWidth / 2;
constexpr int64_t kBatch = 4 * kLanes;  // elements that kLanes counters decide
constexpr int64_t kBlock = 8192;        // elements, a multiple of any kBatch
constexpr int kRounds = 10;

struct RoundKeys {
  WideVec lo[kRounds], hi[kRounds];
};

void KeysOf(RngKey key, RoundKeys* keys) {
  uint32_t lo = key.lo, hi = key.hi;
  for (int round = 0; round < kRounds; ++round) {
    keys->lo[round] = WideVec{} + lo;
    keys->hi[round] = WideVec{} + hi;
    lo += 0x9E3779B9;
    hi += 0xBB67AE85;
  }
}

// The words of kLanes counters, in the order of their elements.
struct Words {
  BitVec first, second;
};

// Puts words into the order of the counters. A lane of `a` has words 0 and 1 of
// a counter, a lane of `b` words 2 and 3. Lanes move only within 16 bytes, so
// counters 0 .. kLanes / 2 - 1 must be in the even lanes.
DELINK_INLINE Words Interleave(WideVec a, WideVec b) {
#if defined(__AVX512F__)
  return {(BitVec)_mm512_maskz_unpacklo_epi64(0xFF, (__m512i)a, (__m512i)b),
          (BitVec)_mm512_maskz_unpackhi_epi64(0xFF, (__m512i)a, (__m512i)b)};
#elif defined(__AVX2__)
  return {(BitVec)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b),
          (BitVec)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b)};
#else
  return {(BitVec)WideVec{a[0], b[0]}, (BitVec)WideVec{a[1], b[1]}};
#endif
}

DELINK_INLINE WideVec CounterOffsets() {
  WideVec offsets;
  for (int64_t i = 0; i < kLanes; ++i) offsets[i] = i / 2 + i % 2 * kLanes / 2;
  return offsets;
}

// The words of counters from `first` on, for kBatches batches. Several at once,
// because each product waits for the one before.
template <int kBatches>
DELINK_INLINE void WordsOf(const RoundKeys& keys, uint64_t first,
                           Words words[kBatches]) {
  constexpr uint64_t kLow = 0xFFFFFFFF;
  constexpr uint64_t kFactor0 = 0xD2511F53, kFactor1 = 0xCD9E8D57;
  WideVec x0[kBatches], x1[kBatches], x2[kBatches], x3[kBatches];
  for (int i = 0; i < kBatches; ++i) {
    // The first round: the upper half of the 128-bit counter is 0.
    const WideVec counter = first + i * kLanes + CounterOffsets();
    x0[i] = (counter >> 32) ^ keys.lo[0];
    x1[i] = WideVec{};
    x3[i] = MultiplyLow(counter, WideVec{} + kFactor0);
    x2[i] = (x3[i] >> 32) ^ keys.hi[0];
  }
#pragma GCC unroll 10
  for (int round = 1; round < kRounds - 1; ++round) {
    for (int i = 0; i < kBatches; ++i) {
      const WideVec p0 = MultiplyLow(x0[i], WideVec{} + kFactor0);
      const WideVec p1 = MultiplyLow(x2[i], WideVec{} + kFactor1);
      x0[i] = Xor(p1 >> 32, x1[i], keys.lo[round]);
      x2[i] = Xor(p0 >> 32, x3[i], keys.hi[round]);
      x1[i] = p1;
      x3[i] = p0;
    }
  }
  const WideVec k0 = keys.lo[kRounds - 1], k1 = keys.hi[kRounds - 1];
  for (int i = 0; i < kBatches; ++i) {
    const WideVec p0 = MultiplyLow(x0[i], WideVec{} + kFactor0);
    const WideVec p1 = MultiplyLow(x2[i], WideVec{} + kFactor1);
    words[i] = Interleave((p1 >> 32 | p1 << 32) ^ ((x1[i] ^ k0) & kLow),
                          (p0 >> 32 | p0 << 32) ^ ((x3[i] ^ k1) & kLow));
  }
}

// Keeps and scales elements. Uniform(word) >= rate means word >> 8 >= limit,
// since both count in steps of 2^-24.
struct Rule {
  explicit Rule(double rate) : scale(static_cast<float>(1.0 / (1.0 - rate))) {
    const float steps = static_cast<float>(rate) * 0x1p24F;
    limit = static_cast<int32_t>(steps);
    if (static_cast<float>(limit) < steps) ++limit;
  }
  // A mask, not a product: dropped elements are 0 even if they were not finite.
  DELINK_INLINE Vec operator()(Vec x, BitVec words) const {
#if defined(__AVX512F__)
    return (Vec)_mm512_maskz_mul_ps(
        _mm512_cmpge_epi32_mask((__m512i)(words >> 8),
                                _mm512_set1_epi32(limit)),
        (__m512)x, _mm512_set1_ps(scale));
#else
    return (Vec)((IntVec)(x * scale) & ((IntVec)(words >> 8) >= limit));
#endif
  }
  int32_t limit;
  float scale;
};

// Up to kBatch elements from element i on. The first may be any of the four of
// its counter.
template <typename T>
void DropoutSome(const Rule& rule, const RoundKeys& keys, uint64_t i,
                 int64_t count, const T* x, T* y) {
  Words words[1];
  WordsOf<1>(keys, i / 4, words);
  uint32_t word[kBatch + kWidth] = {};  // room to read past the last word
  std::memcpy(word, words, sizeof(words));
  for (int64_t j = 0; j < count; j += kWidth) {
    const int64_t rest = count - j < kWidth ? count - j : kWidth;
    BitVec of_lane;
    std::memcpy(&of_lane, word + i % 4 + j, sizeof(of_lane));
    StorePartial(y + j, rule(LoadPartial(x + j, rest), of_lane), rest);
  }
}

// Elements [i, end) of one sample; element i is at x and y.
template <typename T>
void DropoutRange(const Rule& rule, const RoundKeys& keys, uint64_t i,
                  uint64_t end, const T* x, T* y) {
  const auto some = [&](uint64_t count) {
    const int64_t n = static_cast<int64_t>(count < end - i ? count : end - i);
    DropoutSome(rule, keys, i, n, x, y);
    i += n;
    x += n;
    y += n;
  };
  if (i % 4 != 0) some(4 - i % 4);
  constexpr int kBatches = kWidth == 16 ? 4 : 2;  // as registers allow
  for (; end - i >= kBatches * kBatch; i += kBatches * kBatch) {
    Words words[kBatches];
    WordsOf<kBatches>(keys, i / 4, words);
    for (int batch = 0; batch < kBatches; ++batch, x += kBatch, y += kBatch) {
      Store(y, rule(Load(x), words[batch].first));
      Store(y + kWidth, rule(Load(x + kWidth), words[batch].second));
    }
  }
  while (i < end) some(kBatch);
}

// Token by token, for some of the tokens or columns, or if tokens' places are
// not consecutive.
template <typename T>
void DropoutRows(const DropoutArgs& s, const Rule& rule) {
  const int64_t rows = s.rows < 0 ? s.B * s.T : s.rows;
#pragma omp parallel for schedule(static) if (rows * s.D > kParallelFrom)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t b = (s.first_row + row) / s.T, t = (s.first_row + row) % s.T;
    const int64_t place =
        s.places != nullptr ? s.places[t] : s.first_position + t;
    RoundKeys keys;
    KeysOf(SampleKey(s, b), &keys);
    const int64_t first = place * s.all_columns() + s.first_column;
    DropoutRange(rule, keys, static_cast<uint64_t>(first),
                 static_cast<uint64_t>(first + s.D),
                 static_cast<const T*>(s.x) + row * s.row_stride(),
                 static_cast<T*>(s.y) + row * s.row_stride());
  }
}

}  // namespace

template <typename T>
void Dropout(Stream&, const DropoutArgs& s) {
  const Rule rule(s.rate);
  if (s.places != nullptr || s.rows >= 0 || s.width > 0) {
    return DropoutRows<T>(s, rule);
  }
  const int64_t count = s.T * s.D, blocks = (count + kBlock - 1) / kBlock;
#pragma omp parallel for collapse(2) \
    schedule(static) if (s.B * s.T * s.D > kParallelFrom)
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t block = 0; block < blocks; ++block) {
      RoundKeys keys;
      KeysOf(SampleKey(s, b), &keys);
      const int64_t begin = block * kBlock, rest = count - begin;
      const int64_t end = begin + (rest < kBlock ? rest : kBlock);
      const int64_t first = s.first_position * s.D, at = b * count + begin;
      DropoutRange(rule, keys, static_cast<uint64_t>(first + begin),
                   static_cast<uint64_t>(first + end),
                   static_cast<const T*>(s.x) + at, static_cast<T*>(s.y) + at);
    }
  }
}

template void Dropout<float>(Stream&, const DropoutArgs&);
template void Dropout<BFloat16>(Stream&, const DropoutArgs&);

}  // namespace delink::cpu::DELINK_SIMD
