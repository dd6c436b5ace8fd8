#include <algorithm>
#include <cmath>
#include <cstdint>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kCubic = 0.044715;

}  // namespace

double Gelu(double x, GeluForm form) {
  if (form == GeluForm::kErf) return 0.5 * x * std::erfc(-x * kSqrtHalf);
  const double u = kSqrt2OverPi * (x + kCubic * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}

double GeluDerivative(double x, GeluForm form) {
  if (form == GeluForm::kErf) {
    return 0.5 * std::erfc(-x * kSqrtHalf) +
           x * kInvSqrt2Pi * std::exp(-0.5 * x * x);
  }
  const double u = kSqrt2OverPi * (x + kCubic * x * x * x);
  const double du = kSqrt2OverPi * (1.0 + 3.0 * kCubic * x * x);
  const double t = std::tanh(u);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}

template <typename T>
void GeluForward(Stream&, const GeluForwardArgs& s) {
  const T* x = static_cast<const T*>(s.x);
  T* y = static_cast<T*>(s.y);
  for (int64_t i = 0; i < s.count; ++i) {
    y[i] = static_cast<T>(Gelu(x[i], s.form));
  }
}

template <typename T>
void GeluBackward(Stream&, const GeluBackwardArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  const T* x = static_cast<const T*>(s.x);
  T* dx = static_cast<T*>(s.dx);
  for (int64_t i = 0; i < s.count; ++i) {
    dx[i] = static_cast<T>(dy[i] * GeluDerivative(x[i], s.form));
  }
}

template <typename T>
void Add(Stream&, const AddArgs& s) {
  const T* a = static_cast<const T*>(s.a);
  const T* b = static_cast<const T*>(s.b);
  T* y = static_cast<T*>(s.y);
  for (int64_t i = 0; i < s.count; ++i) {
    y[i] = static_cast<T>(double{a[i]} + b[i]);
  }
}

template <typename T>
void Accumulate(Stream&, const AccumulateArgs& s) {
  const T* x = static_cast<const T*>(s.x);
  T* y = static_cast<T*>(s.y);
  for (int64_t i = 0; i < s.count; ++i) {
    y[i] = static_cast<T>(double{y[i]} + x[i]);
  }
}

template <typename T>
void Widen(Stream&, const WidenArgs& s) {
  std::copy_n(static_cast<const T*>(s.x), s.count, static_cast<Wide<T>*>(s.y));
}

template <typename T>
void RoundGradient(Stream&, const RoundGradientArgs& s) {
  const auto* x = static_cast<const Wide<T>*>(s.x);
  auto* y = static_cast<BFloat16*>(s.y);
  for (int64_t i = 0; i < s.count; ++i) {
    const double before = s.accumulate ? y[i] : 0.0F;
    y[i] = static_cast<BFloat16>(before + x[i]);
  }
}

template <typename T>
void Dropout(Stream&, const DropoutArgs& s) {
  const float rate = static_cast<float>(s.rate);
  const double scale = 1.0 / (1.0 - s.rate);
  const RngKey layer_key = Fold(*s.step_key, s.name_hash);
  const int64_t rows = s.rows < 0 ? s.B * s.T : s.rows;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t b = (s.first_row + row) / s.T, t = (s.first_row + row) % s.T;
    const RngKey key = Fold(layer_key, static_cast<uint64_t>(s.sample[b]));
    const int64_t place =
        s.places != nullptr ? s.places[t] : s.first_position + t;
    const int64_t first = place * s.all_columns() + s.first_column;
    const T* x = static_cast<const T*>(s.x) + row * s.row_stride();
    T* y = static_cast<T*>(s.y) + row * s.row_stride();
    for (int64_t d = 0; d < s.D; ++d) {
      const uint64_t index = static_cast<uint64_t>(first + d);
      const uint32_t word = Philox(key, index / 4, 0)[index % 4];
      y[d] = Uniform(word) >= rate ? static_cast<T>(x[d] * scale) : T{};
    }
  }
}

#define DELINK_INSTANTIATE(T)                                        \
  template void GeluForward<T>(Stream&, const GeluForwardArgs&);     \
  template void GeluBackward<T>(Stream&, const GeluBackwardArgs&);   \
  template void Add<T>(Stream&, const AddArgs&);                     \
  template void Accumulate<T>(Stream&, const AccumulateArgs&);       \
  template void Widen<T>(Stream&, const WidenArgs&);                 \
  template void RoundGradient<T>(Stream&, const RoundGradientArgs&); \
  template void Dropout<T>(Stream&, const DropoutArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
