// ref/swiglu.cc has the formulas.
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

DELINK_INLINE Vec Sigmoid(Vec x) { return 1.0F / (1.0F + Exp(-x)); }

}  // namespace

void SwiGluForward(Stream&, const SwiGluForwardArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.F > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const float* gate = static_cast<const float*>(s.x) + n * 2 * s.F;
    const float* up = gate + s.F;
    float* y = static_cast<float*>(s.y) + n * s.F;
    ForRow(s.F, [&](auto load, auto store) DELINK_LAMBDA {
      const Vec g = load(gate);
      store(y, g * Sigmoid(g) * load(up));
    });
  }
}

void SwiGluBackward(Stream&, const SwiGluBackwardArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.F > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const float* dy = static_cast<const float*>(s.dy) + n * s.F;
    const float* gate = static_cast<const float*>(s.x) + n * 2 * s.F;
    const float* up = gate + s.F;
    float* dgate = static_cast<float*>(s.dx) + n * 2 * s.F;
    float* dup = dgate + s.F;
    ForRow(s.F, [&](auto load, auto store) DELINK_LAMBDA {
      const Vec g = load(gate), u = load(up), d = load(dy);
      const Vec sigmoid = Sigmoid(g);
      const Vec silu = g * sigmoid;
      store(dup, d * silu);
      // s (1 + g (1 - s)) = s + silu (1 - s).
      store(dgate, d * u * Fma(silu, 1.0F - sigmoid, sigmoid));
    });
  }
}

}  // namespace delink::cpu::DELINK_SIMD
