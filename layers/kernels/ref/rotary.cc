#include <cmath>
#include <cstdint>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {

template <typename T>
void Rotary(Stream&, const RotaryArgs& s) {
  const RotaryAngles& angles = *s.angles;
  const bool half = angles.pairing == RotaryPairing::kHalf;
  for (int64_t n = 0; n < s.B * s.T; ++n) {
    const auto position = static_cast<double>(
        s.positions != nullptr ? s.positions[n] : s.first_position + n % s.T);
    for (int i = 0; i < angles.pairs; ++i) {
      const double angle = position * angles.inverse_frequency[i];
      const double cos = std::cos(angle);
      const double sin = s.inverse ? -std::sin(angle) : std::sin(angle);
      for (int64_t h = 0; h < s.heads; ++h) {
        T* head = static_cast<T*>(s.x) + n * s.row + h * s.Dh;
        T& first = head[half ? i : 2 * i];
        T& second = head[half ? i + angles.pairs : 2 * i + 1];
        const double a = first, b = second;
        first = static_cast<T>(a * cos - b * sin);
        second = static_cast<T>(a * sin + b * cos);
      }
    }
  }
}

template void Rotary<float>(Stream&, const RotaryArgs&);
template void Rotary<double>(Stream&, const RotaryArgs&);
template void Rotary<BFloat16>(Stream&, const RotaryArgs&);

}  // namespace delink::ref
