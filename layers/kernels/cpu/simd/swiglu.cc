// ref/swiglu.cc has the formulas.
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
template <typename T>
void SwiGluForward(Stream&, const SwiGluForwardArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.F > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const T* gate = static_cast<const T*>(s.x) + n * 2 * s.F;
    const T* up = gate + s.F;
    T* y = static_cast<T*>(s.y) + n * s.F;
    ForRow(s.F, [&](auto load, auto store) DELINK_LAMBDA {
      const Vec g = load(gate);
      store(y, g * Sigmoid(g) * load(up));
    });
  }
}

template <typename T>
void SwiGluBackward(Stream&, const SwiGluBackwardArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.F > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const T* dy = static_cast<const T*>(s.dy) + n * s.F;
    const T* gate = static_cast<const T*>(s.x) + n * 2 * s.F;
    const T* up = gate + s.F;
    T* dgate = static_cast<T*>(s.dx) + n * 2 * s.F;
    T* dup = dgate + s.F;
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

template void SwiGluForward<float>(Stream&, const SwiGluForwardArgs&);
template void SwiGluForward<BFloat16>(Stream&, const SwiGluForwardArgs&);
template void SwiGluBackward<float>(Stream&, const SwiGluBackwardArgs&);
template void SwiGluBackward<BFloat16>(Stream&, const SwiGluBackwardArgs&);

}  // namespace delink::cpu::DELINK_SIMD
