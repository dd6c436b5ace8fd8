// ref/rotary.cc has the formulas. The sines and cosines of a token are computed
// once for all its heads, and for all samples with the same position.
// They are f32, from angles reduced in double; reading a table would cost more.
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// kWidth doubles, in as many registers as it takes.
typedef double DoubleVec __attribute__((vector_size(kWidth * 8)));
typedef int64_t LongVec __attribute__((vector_size(kWidth * 8)));

struct SinCos {
  Vec sin, cos;
};

// For angle >= 0. pi/2 is split into 33 bits and a rest, so that a whole
// multiple below 2^20 is subtracted exactly (fdlibm). The polynomials are those
// of Moshier's Cephes, sinf and cosf.
DELINK_INLINE SinCos SinCosOf(DoubleVec angle) {
  constexpr double kRoundDouble = 6755399441055744.0;  // 1.5 * 2^52
  const DoubleVec rounded = angle * 0.63661977236758134308 + kRoundDouble;
  const DoubleVec n = rounded - kRoundDouble;
  const DoubleVec rest =
      (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  const IntVec quadrant = __builtin_convertvector((LongVec)rounded, IntVec);
  const Vec x = __builtin_convertvector(rest, Vec);
  const Vec z = x * x;
  Vec s = Fma(Set(-1.9515295891e-4F), z, Set(8.3321608736e-3F));
  s = Fma(s, z, Set(-1.6666654611e-1F));
  s = Fma(s * z, x, x);
  Vec c = Fma(Set(2.443315711809948e-5F), z, Set(-1.388731625493765e-3F));
  c = Fma(c, z, Set(4.166664568298827e-2F));
  c = Fma(c, z * z, Fma(z, Set(-0.5F), Set(1.0F)));
  const IntVec odd = (quadrant & 1) != 0;
  const IntVec sin_sign = (quadrant & 2) << 30;
  const IntVec cos_sign = ((quadrant + 1) & 2) << 30;
  return {(Vec)((IntVec)(odd ? c : s) ^ sin_sign),
          (Vec)((IntVec)(odd ? s : c) ^ cos_sign)};
}

// For kInterleaved each number is stored twice, with the first sine negated, so
// that x' = x cos + (its neighbour) sin is right for both elements of a pair.
struct Turn {
  float cos[2 * kMaxRotaryPairs];
  float sin[2 * kMaxRotaryPairs];
};

void TurnAt(const RotaryArgs& s, int64_t position, Turn* turn) {
  const RotaryAngles& angles = *s.angles;
  static_assert(kMaxRotaryPairs % kWidth == 0);
  float sin[kMaxRotaryPairs], cos[kMaxRotaryPairs];
  for (int i = 0; i < angles.pairs; i += kWidth) {
    DoubleVec frequency;
    std::memcpy(&frequency, angles.inverse_frequency + i, sizeof(frequency));
    const SinCos at = SinCosOf(frequency * static_cast<double>(position));
    Store(sin + i, s.inverse ? -at.sin : at.sin);
    Store(cos + i, at.cos);
  }
  if (angles.pairing == RotaryPairing::kHalf) {
    std::memcpy(turn->cos, cos, sizeof(cos));
    std::memcpy(turn->sin, sin, sizeof(sin));
    return;
  }
  for (int i = 0; i < angles.pairs; ++i) {
    turn->cos[2 * i] = turn->cos[2 * i + 1] = cos[i];
    turn->sin[2 * i] = -sin[i];
    turn->sin[2 * i + 1] = sin[i];
  }
}

template <typename T>
void TurnHalves(T* first, int pairs, const Turn& turn) {
  T* second = first + pairs;
  ForRow(pairs, [&](auto load, auto store) DELINK_LAMBDA {
    const Vec a = load(first), b = load(second);
    const Vec cos = load(turn.cos), sin = load(turn.sin);
    store(first, Fma(a, cos, -(b * sin)));
    store(second, Fma(b, cos, a * sin));
  });
}

template <typename T>
void TurnNeighbours(T* x, int pairs, const Turn& turn) {
  ForRow(2 * pairs, [&](auto load, auto store) DELINK_LAMBDA {
    const Vec v = load(x);
    const WideVec bits = (WideVec)v;
    const Vec swapped = (Vec)((bits << 32) | (bits >> 32));
    store(x, Fma(v, load(turn.cos), swapped * load(turn.sin)));
  });
}

}  // namespace

template <typename T>
void Rotary(Stream&, const RotaryArgs& s) {
  const int pairs = s.angles->pairs;
  const bool half = s.angles->pairing == RotaryPairing::kHalf;
#pragma omp parallel for schedule(static) if (s.B * s.T * s.heads * s.Dh > \
                                              kParallelFrom)
  for (int64_t t = 0; t < s.T; ++t) {
    Turn turn;
    int64_t made = -1;
    for (int64_t b = 0; b < s.B; ++b) {
      const int64_t position = s.positions != nullptr ? s.positions[b * s.T + t]
                                                      : s.first_position + t;
      if (position != made) TurnAt(s, position, &turn);
      made = position;
      T* head = static_cast<T*>(s.x) + (b * s.T + t) * s.row;
      for (int64_t h = 0; h < s.heads; ++h, head += s.Dh) {
        if (half) {
          TurnHalves(head, pairs, turn);
        } else {
          TurnNeighbours(head, pairs, turn);
        }
      }
    }
  }
}

template void Rotary<float>(Stream&, const RotaryArgs&);
template void Rotary<BFloat16>(Stream&, const RotaryArgs&);

}  // namespace delink::cpu::DELINK_SIMD
