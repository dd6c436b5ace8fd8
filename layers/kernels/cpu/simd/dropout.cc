// Philox4x32-10 (framework/base/rng.h) on as many counters at once as there
// are 64-bit lanes, so that each round's products are whole.
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/columns.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kLanes = kWidth / 2;
constexpr int64_t kBatch = 4 * kLanes;  // elements decided together

// keep[4c + w] = whether word w of counter first + c keeps its element.
void Keep(RngKey key, uint64_t first, float rate, float scale,
          float keep[kBatch]) {
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
  for (int c = 0; c < kLanes; ++c) {
    const uint64_t words[4] = {x0[c], x1[c], x2[c], x3[c]};
    for (int w = 0; w < 4; ++w) {
      const float uniform =
          static_cast<float>(static_cast<int32_t>(words[w] >> 8)) * 0x1p-24F;
      keep[4 * c + w] = uniform >= rate ? scale : 0.0F;
    }
  }
}

// Elements [begin, end) of one sample; element `begin` is at x and y.
void DropoutRange(const DropoutArgs& s, RngKey key, uint64_t begin,
                  uint64_t end, const float* x, float* y) {
  const float rate = static_cast<float>(s.rate);
  const float scale = static_cast<float>(1.0 / (1.0 - s.rate));
  float keep[kBatch];
  for (uint64_t i = begin; i < end;) {
    Keep(key, i / 4, rate, scale, keep);
    const uint64_t skip = i % 4;
    uint64_t count = kBatch - skip;
    if (count > end - i) count = end - i;
    for (uint64_t j = 0; j < count; ++j) {
      const float factor = keep[skip + j];
      // Not a product: what is dropped is 0, even if it was not finite.
      y[j] = factor == 0.0F ? 0.0F : x[j] * factor;
    }
    x += count;
    y += count;
    i += count;
  }
}

}  // namespace

void Dropout(Stream&, const DropoutArgs& s) {
#pragma omp parallel for collapse(2) \
    schedule(static) if (s.B * s.T * s.D > kParallelFrom)
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t t = 0; t < s.T; ++t) {
      const uint64_t begin =
          static_cast<uint64_t>((s.first_position + t) * s.D);
      const int64_t at = (b * s.T + t) * s.D;
      DropoutRange(s, SampleKey(s, b), begin, begin + s.D,
                   static_cast<const float*>(s.x) + at,
                   static_cast<float*>(s.y) + at);
    }
  }
}

}  // namespace delink::cpu::DELINK_SIMD
