// Values of 8 bits each and one f32 a block, for CPU and CUDA kernels: the
// block-wise dynamic quantisation of Dettmers et al., "8-bit optimizers via
// block-wise quantization" (ICLR 2022, arXiv 2110.02861).
//
// A block has a scale, the largest magnitude in it; a code stands for a
// fraction of that. Fractions are dense where they are large and reach over
// seven decades: decade i of 0 to 6, [10^(i-7), 10^(i-6)), is cut into
// equal segments, 2^i of them for signed values (sign and 7 bits) and 2^(i+1)
// for unsigned ones (8 bits), each of which stands for its middle. Code 0 is
// zero, and the largest code is exactly 1, so that -scale and scale are among
// the values. Reading and writing again therefore changes neither codes nor
// scale: checkpoints hold plain f32, and a resumed run is still bit-identical.
// (The published signed map has no -1 and one value more below 1.)
//
// Blocks are cut at multiples of kBlock8 elements of a slab and at the ends of
// parameters: they depend on neither shards nor data ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace delink {

inline constexpr int64_t kBlock8 = 256;  // elements

namespace internal {
inline constexpr uint32_t kDecades8 = 7;

// `least`: segments of the lowest decade, 1 or 2.
constexpr void FillFractions8(uint32_t least, float* out, int count) {
  double top = 1e-6;
  int code = 0;
  out[code++] = 0;
  for (uint32_t i = 0, n = least; i < kDecades8; ++i, n *= 2) {
    for (uint32_t j = 0; j < n; ++j) {
      out[code++] = static_cast<float>((0.1 + 0.9 * (j + 0.5) / n) * top);
    }
    top *= 10;
  }
  out[count - 1] = 1;
}
constexpr std::array<float, 256> Signed8() {
  std::array<float, 256> fractions{};
  FillFractions8(1, fractions.data(), 128);
  for (std::size_t k = 0; k < 128; ++k) fractions[128 + k] = -fractions[k];
  return fractions;
}
constexpr std::array<float, 256> Unsigned8() {
  std::array<float, 256> fractions{};
  FillFractions8(2, fractions.data(), 256);
  return fractions;
}
}  // namespace internal

// What each code stands for; the upper bit of a signed one is its sign.
inline constexpr std::array<float, 256> kSignedFractions8 = internal::Signed8();
inline constexpr std::array<float, 256> kUnsignedFractions8 =
    internal::Unsigned8();

// The factor of a block's values before Code8: 1 / scale, or 0 if the scale is
// too small, infinite or NaN; then the block counts as zeros, and its scale
// should be stored as 0.
constexpr float Inverse8(float scale) {
  const bool usable = scale >= std::numeric_limits<float>::min() &&
                      scale <= std::numeric_limits<float>::max();
  return usable ? 1 / scale : 0;
}

// The code of `fraction`, from -1 (unsigned: 0) to 1. It is one multiplication
// of floats, and then integers: compilers have nothing to contract, so the code
// is the same on every machine.
template <bool kSigned>
constexpr uint8_t Code8(float fraction) {
  const float size = fraction < 0 ? -fraction : fraction;
  const float x = size <= 1 ? size : 1.0F;
  // The decade: its number of segments, and the factor that scales it to
  // [0.1, 1) times 2^24.
  constexpr float kTops[] = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F};
  constexpr float kRaises[] = {1e5F * 0x1p24F, 1e4F * 0x1p24F, 1e3F * 0x1p24F,
                               1e2F * 0x1p24F, 1e1F * 0x1p24F, 0x1p24F};
  constexpr uint32_t kLeast = kSigned ? 1 : 2;
  uint32_t n = kLeast;
  float raise = 1e6F * 0x1p24F;
  for (uint32_t i = 0; i + 1 < internal::kDecades8; ++i) {
    n = x >= kTops[i] ? kLeast << (i + 1) : n;
    raise = x >= kTops[i] ? kRaises[i] : raise;
  }
  constexpr uint32_t kBottom = 1677722, kSpan = 15099494;  // 0.1, 0.9
  const auto raised = static_cast<uint32_t>(static_cast<int32_t>(x * raise));
  const uint32_t above = raised > kBottom ? raised - kBottom : 0;
  const uint32_t segment = above * n / kSpan;
  const uint32_t j = segment < n ? segment : n - 1;
  // The decades below have n - kLeast codes, and zero is one more.
  uint32_t code = n - kLeast + 1 + j;
  code = x < 1e-7F ? 0 : code;
  if (kSigned) {
    const bool below_zero = fraction < 0 && code > 0;
    return static_cast<uint8_t>(code + (below_zero ? 128 : 0));
  }
  return static_cast<uint8_t>(x >= 0.998F ? 255 : code);
}

// Encodes a block of n values; returns its scale.
inline float Encode8(bool is_signed, const float* values, std::size_t n,
                     uint8_t* codes) {
  float scale = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float size = values[i] < 0 ? -values[i] : values[i];
    scale = size > scale ? size : scale;
  }
  const float inverse = Inverse8(scale);
  for (std::size_t i = 0; i < n; ++i) {
    const float fraction = values[i] * inverse;
    codes[i] = is_signed ? Code8<true>(fraction) : Code8<false>(fraction);
  }
  return inverse > 0 ? scale : 0;
}

}  // namespace delink
