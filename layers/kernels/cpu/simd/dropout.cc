// Philox4x32-10 (framework/base/rng.h) on as many counters at once as there
// are 64-bit lanes, so that each round's products are whole.
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kLanes = kWidth / 2;
constexpr int64_t kBatch = 4 * kLanes;  // elements decided together

// Uniform(word) >= rate means word >= threshold: both count in steps of 2^-24.
uint64_t Threshold(float rate) {
  const float steps = rate * 0x1p24F;
  const uint64_t whole = static_cast<uint64_t>(steps);
  return (whole + (static_cast<float>(whole) < steps ? 1 : 0)) << 8;
}

// keep[4c + w] is all ones if word w of counter first + c keeps its element,
// else 0.
void Keep(RngKey key, uint64_t first, uint64_t threshold,
          uint32_t keep[kBatch]) {
  constexpr uint64_t kLow = 0xFFFFFFFF;
  WideVec counter{};
  for (int c = 0; c < kLanes; ++c) counter[c] = first + c;
  WideVec x0 = counter & kLow, x1 = counter >> 32, x2{}, x3{};
  uint32_t k0 = key.lo, k1 = key.hi;
  for (int round = 0; round < 10; ++round) {
    const WideVec p0 = MultiplyLow(x0, WideVec{} + 0xD2511F53u);
    const WideVec p1 = MultiplyLow(x2, WideVec{} + 0xCD9E8D57u);
    x0 = (p1 >> 32) ^ x1 ^ static_cast<uint64_t>(k0);
    x2 = (p0 >> 32) ^ x3 ^ static_cast<uint64_t>(k1);
    x1 = p1 & kLow;
    x3 = p0 & kLow;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const WideVec limit = WideVec{} + threshold;
  const WideVec low =
      ((WideVec)(x0 >= limit) & kLow) | ((WideVec)(x1 >= limit) & ~kLow);
  const WideVec high =
      ((WideVec)(x2 >= limit) & kLow) | ((WideVec)(x3 >= limit) & ~kLow);
  uint64_t lows[kLanes], highs[kLanes], both[2 * kLanes];
  std::memcpy(lows, &low, sizeof(low));
  std::memcpy(highs, &high, sizeof(high));
  for (int c = 0; c < kLanes; ++c) {
    both[2 * c] = lows[c];
    both[2 * c + 1] = highs[c];
  }
  std::memcpy(keep, both, sizeof(both));
}

// A mask, not a product: what is dropped is 0, even if it was not finite.
DELINK_INLINE Vec Apply(Vec x, float scale, const uint32_t* keep) {
  IntVec mask;
  std::memcpy(&mask, keep, sizeof(mask));
  return (Vec)((IntVec)(x * scale) & mask);
}

// Elements [begin, end) of one sample; element `begin` is at x and y.
template <typename T>
void DropoutRange(const DropoutArgs& s, RngKey key, uint64_t begin,
                  uint64_t end, const T* x, T* y) {
  const uint64_t threshold = Threshold(static_cast<float>(s.rate));
  const float scale = static_cast<float>(1.0 / (1.0 - s.rate));
  uint32_t keep[kBatch + kWidth] = {};  // room to read past the last word
  for (uint64_t i = begin; i < end;) {
    Keep(key, i / 4, threshold, keep);
    const int64_t skip = static_cast<int64_t>(i % 4);
    int64_t count = kBatch - skip;
    if (count > static_cast<int64_t>(end - i)) {
      count = static_cast<int64_t>(end - i);
    }
    for (int64_t j = 0; j < count; j += kWidth) {
      const int64_t rest = count - j;
      if (rest >= kWidth) {
        Store(y + j, Apply(Load(x + j), scale, keep + skip + j));
      } else {
        StorePartial(y + j,
                     Apply(LoadPartial(x + j, rest), scale, keep + skip + j),
                     rest);
      }
    }
    x += count;
    y += count;
    i += static_cast<uint64_t>(count);
  }
}

}  // namespace

template <typename T>
void Dropout(Stream&, const DropoutArgs& s) {
#pragma omp parallel for collapse(2) \
    schedule(static) if (s.B * s.T * s.D > kParallelFrom)
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t t = 0; t < s.T; ++t) {
      const uint64_t begin =
          static_cast<uint64_t>((s.first_position + t) * s.D);
      const int64_t at = (b * s.T + t) * s.D;
      DropoutRange(s, SampleKey(s, b), begin, begin + s.D,
                   static_cast<const T*>(s.x) + at, static_cast<T*>(s.y) + at);
    }
  }
}

template void Dropout<float>(Stream&, const DropoutArgs&);
template void Dropout<BFloat16>(Stream&, const DropoutArgs&);

}  // namespace delink::cpu::DELINK_SIMD
