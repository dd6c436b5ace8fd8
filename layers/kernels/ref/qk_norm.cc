// RMS norm (norm.cc has the formulas) of the heads of a packed projection.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {

template <typename T>
void QkNormForward(Stream& stream, const QkNormForwardArgs& s) {
  const int64_t normed = s.H + s.Hkv, row = (s.H + 2 * s.Hkv) * s.Dh;
  for (int64_t n = 0; n < s.N; ++n) {
    const T* x = static_cast<const T*>(s.x) + n * row;
    T* y = static_cast<T*>(s.y) + n * row;
    for (int64_t h = 0; h < normed; ++h) {
      RmsNormForward<T>(
          stream, {.N = 1,
                   .D = s.Dh,
                   .eps = s.eps,
                   .x = x + h * s.Dh,
                   .w = h < s.H ? s.q_w : s.k_w,
                   .y = y + h * s.Dh,
                   .rstd = s.rstd != nullptr
                               ? static_cast<Wide<T>*>(s.rstd) + n * normed + h
                               : nullptr});
    }
    std::copy(x + normed * s.Dh, x + row, y + normed * s.Dh);
  }
}

template <typename T>
void QkNormBackwardInput(Stream& stream, const QkNormBackwardInputArgs& s) {
  const int64_t normed = s.H + s.Hkv, row = (s.H + 2 * s.Hkv) * s.Dh;
  for (int64_t n = 0; n < s.N; ++n) {
    const T* dy = static_cast<const T*>(s.dy) + n * row;
    const T* x = static_cast<const T*>(s.x) + n * row;
    T* dx = static_cast<T*>(s.dx) + n * row;
    for (int64_t h = 0; h < normed; ++h) {
      RmsNormBackwardInput<T>(
          stream, {.N = 1,
                   .D = s.Dh,
                   .dy = dy + h * s.Dh,
                   .x = x + h * s.Dh,
                   .w = h < s.H ? s.q_w : s.k_w,
                   .rstd = static_cast<const Wide<T>*>(s.rstd) + n * normed + h,
                   .dx = dx + h * s.Dh});
    }
    if (dx != dy) std::copy(dy + normed * s.Dh, dy + row, dx + normed * s.Dh);
  }
}

template <typename T>
void QkNormBackwardWeight(Stream&, const QkNormBackwardWeightArgs& s) {
  auto* dw = static_cast<Wide<T>*>(s.dw);
  std::vector<double> sum(s.Dh, 0.0);
  for (int64_t d = 0; s.accumulate && d < s.Dh; ++d) sum[d] = dw[d];
  for (int64_t n = 0; n < s.N; ++n) {
    for (int64_t h = s.first_head; h < s.first_head + s.heads; ++h) {
      const double rstd =
          static_cast<const Wide<T>*>(s.rstd)[n * s.rstd_heads + h];
      const int64_t at = (n * s.row_heads + h) * s.Dh;
      const T* dy = static_cast<const T*>(s.dy) + at;
      const T* x = static_cast<const T*>(s.x) + at;
      for (int64_t d = 0; d < s.Dh; ++d) sum[d] += double{dy[d]} * x[d] * rstd;
    }
  }
  for (int64_t d = 0; d < s.Dh; ++d) dw[d] = static_cast<Wide<T>>(sum[d]);
}

#define DELINK_INSTANTIATE(T)                                           \
  template void QkNormForward<T>(Stream&, const QkNormForwardArgs&);    \
  template void QkNormBackwardInput<T>(Stream&,                         \
                                       const QkNormBackwardInputArgs&); \
  template void QkNormBackwardWeight<T>(Stream&,                        \
                                        const QkNormBackwardWeightArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
