// With s = 1 / (1 + exp(-gate)):
//   dup = dy gate s,  dgate = dy up s (1 + gate (1 - s))
#include <cmath>
#include <cstdint>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {

template <typename T>
void SwiGluForward(Stream&, const SwiGluForwardArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    const T* gate = static_cast<const T*>(s.x) + n * 2 * s.F;
    const T* up = gate + s.F;
    T* y = static_cast<T*>(s.y) + n * s.F;
    for (int64_t f = 0; f < s.F; ++f) {
      const double g = gate[f];
      y[f] = static_cast<T>(g / (1.0 + std::exp(-g)) * up[f]);
    }
  }
}

template <typename T>
void SwiGluBackward(Stream&, const SwiGluBackwardArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    const T* dy = static_cast<const T*>(s.dy) + n * s.F;
    const T* gate = static_cast<const T*>(s.x) + n * 2 * s.F;
    T* dgate = static_cast<T*>(s.dx) + n * 2 * s.F;
    for (int64_t f = 0; f < s.F; ++f) {
      const double g = gate[f], up = gate[s.F + f], d = dy[f];
      const double sigmoid = 1.0 / (1.0 + std::exp(-g));
      dgate[f] = static_cast<T>(d * up * sigmoid * (1.0 + g * (1.0 - sigmoid)));
      dgate[s.F + f] = static_cast<T>(d * g * sigmoid);
    }
  }
}

template void SwiGluForward<float>(Stream&, const SwiGluForwardArgs&);
template void SwiGluForward<double>(Stream&, const SwiGluForwardArgs&);
template void SwiGluForward<BFloat16>(Stream&, const SwiGluForwardArgs&);
template void SwiGluBackward<float>(Stream&, const SwiGluBackwardArgs&);
template void SwiGluBackward<double>(Stream&, const SwiGluBackwardArgs&);
template void SwiGluBackward<BFloat16>(Stream&, const SwiGluBackwardArgs&);

}  // namespace delink::ref
