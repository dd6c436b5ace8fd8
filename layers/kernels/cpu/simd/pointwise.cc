#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kBlock = 4096;  // elements, a multiple of any kWidth

// Calls body(first, count) for blocks of [0, count), shared among the team.
template <typename Body>
void ForBlocks(int64_t count, const Body& body) {
#pragma omp parallel for schedule(static) if (count > kParallelFrom)
  for (int64_t first = 0; first < count; first += kBlock) {
    body(first, count - first < kBlock ? count - first : kBlock);
  }
}

// With e = exp(-2u), u = sqrt(2/pi) (x + 0.044715 x^3), the tanh form is
// x / (1 + e).
DELINK_INLINE Vec TanhExp(Vec x) {
  return Exp(x * Fma(x * x, Set(-0.071354816F), Set(-1.5957691F)));
}

DELINK_INLINE Vec TanhGelu(Vec x) { return x / (1.0F + TanhExp(x)); }

DELINK_INLINE Vec TanhDerivative(Vec x) {
  // Past +-10 the derivative is 0 or 1 in f32; nothing may overflow there.
  const Vec z = Min(Set(10.0F), Max(Set(-10.0F), x));
  const Vec e = TanhExp(z);
  const Vec gate = 1.0F / (1.0F + e);
  const Vec two_du = Fma(z * z, Set(0.21406445F), Set(1.5957691F));
  // 1 - gate, without cancellation, is e * gate.
  return Fma(z * two_du, gate * (e * gate), gate);
}

DELINK_INLINE Vec ErfDerivative(Vec x) {
  const Vec density = Exp(x * x * -0.5F) * 0.39894228F;
  return Fma(x, density, NormalCdf(x));
}

}  // namespace

void GeluForward(Stream&, const GeluForwardArgs& s) {
  const bool tanh = s.form == GeluForm::kTanh;
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const float* x = static_cast<const float*>(s.x) + first;
    float* y = static_cast<float*>(s.y) + first;
    if (tanh) {
      ForRow(count, [&](auto load, auto store)
                        DELINK_LAMBDA { store(y, TanhGelu(load(x))); });
    } else {
      ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
        const Vec v = load(x);
        store(y, v * NormalCdf(v));
      });
    }
  });
}

void GeluBackward(Stream&, const GeluBackwardArgs& s) {
  const bool tanh = s.form == GeluForm::kTanh;
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const float* x = static_cast<const float*>(s.x) + first;
    const float* dy = static_cast<const float*>(s.dy) + first;
    float* dx = static_cast<float*>(s.dx) + first;
    if (tanh) {
      ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
        store(dx, load(dy) * TanhDerivative(load(x)));
      });
    } else {
      ForRow(count, [&](auto load, auto store) DELINK_LAMBDA {
        store(dx, load(dy) * ErfDerivative(load(x)));
      });
    }
  });
}

void Add(Stream&, const AddArgs& s) {
  ForBlocks(s.count, [&](int64_t first, int64_t count) {
    const float* a = static_cast<const float*>(s.a) + first;
    const float* b = static_cast<const float*>(s.b) + first;
    float* y = static_cast<float*>(s.y) + first;
    ForRow(count, [&](auto load, auto store)
                      DELINK_LAMBDA { store(y, load(a) + load(b)); });
  });
}

void Accumulate(Stream& stream, const AccumulateArgs& s) {
  Add(stream, {.count = s.count, .a = s.y, .b = s.x, .y = s.y});
}

}  // namespace delink::cpu::DELINK_SIMD
