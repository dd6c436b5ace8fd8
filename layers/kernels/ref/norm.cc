// Layer norm and RMS norm. With xhat = (x - mean) * rstd and g = dy * w,
//   layer norm: dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
//   RMS norm:   dx = rstd * (g - xhat * mean(g * xhat)),  xhat = x * rstd
//   dw = sum over rows of dy * xhat, db = sum over rows of dy
#include <cmath>
#include <cstdint>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

// The number to normalise: x, or x + add, which is stored in `sum`.
template <typename T, typename Args>
const T* Summed(Stream& stream, const Args& s) {
  if (s.add == nullptr) return static_cast<const T*>(s.x);
  Add<T>(stream, {.count = s.N * s.D, .a = s.x, .b = s.add, .y = s.sum});
  return static_cast<const T*>(s.sum);
}

// The number to add to the gradient: zero without `add`.
template <typename T, typename Args>
double Added(const Args& s, int64_t i) {
  return s.add != nullptr ? double{static_cast<const T*>(s.add)[i]} : 0.0;
}

}  // namespace

template <typename T>
void LayerNormForward(Stream& stream, const LayerNormForwardArgs& s) {
  const T* x = Summed<T>(stream, s);
  const T* w = static_cast<const T*>(s.w);
  const T* b = static_cast<const T*>(s.b);
  T* y = static_cast<T*>(s.y);
  for (int64_t n = 0; n < s.N; ++n, x += s.D, y += s.D) {
    double mean = 0.0;
    for (int64_t d = 0; d < s.D; ++d) mean += x[d];
    mean /= static_cast<double>(s.D);
    double variance = 0.0;
    for (int64_t d = 0; d < s.D; ++d) {
      variance += (x[d] - mean) * (x[d] - mean);
    }
    variance /= static_cast<double>(s.D);
    const double rstd = 1.0 / std::sqrt(variance + s.eps);
    for (int64_t d = 0; d < s.D; ++d) {
      const double bias = b != nullptr ? b[d] : 0.0;
      y[d] = static_cast<T>((x[d] - mean) * rstd * w[d] + bias);
    }
    if (s.rstd != nullptr) {
      static_cast<Wide<T>*>(s.mean)[n] = static_cast<Wide<T>>(mean);
      static_cast<Wide<T>*>(s.rstd)[n] = static_cast<Wide<T>>(rstd);
    }
  }
}

template <typename T>
void LayerNormBackwardInput(Stream&, const LayerNormBackwardInputArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  const T* x = static_cast<const T*>(s.x);
  const T* w = static_cast<const T*>(s.w);
  T* dx = static_cast<T*>(s.dx);
  for (int64_t n = 0; n < s.N; ++n, dy += s.D, x += s.D, dx += s.D) {
    const double mean = static_cast<const Wide<T>*>(s.mean)[n];
    const double rstd = static_cast<const Wide<T>*>(s.rstd)[n];
    double mean_g = 0.0, mean_gx = 0.0;
    for (int64_t d = 0; d < s.D; ++d) {
      const double g = double{dy[d]} * w[d];
      mean_g += g;
      mean_gx += g * (x[d] - mean) * rstd;
    }
    mean_g /= static_cast<double>(s.D);
    mean_gx /= static_cast<double>(s.D);
    for (int64_t d = 0; d < s.D; ++d) {
      const double g = double{dy[d]} * w[d];
      const double xhat = (x[d] - mean) * rstd;
      dx[d] = static_cast<T>(rstd * (g - mean_g - xhat * mean_gx) +
                             Added<T>(s, n * s.D + d));
    }
  }
}

template <typename T>
void LayerNormBackwardWeight(Stream&, const LayerNormBackwardWeightArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  const T* x = static_cast<const T*>(s.x);
  const auto* mean = static_cast<const Wide<T>*>(s.mean);
  const auto* rstd = static_cast<const Wide<T>*>(s.rstd);
  auto* dw = static_cast<Wide<T>*>(s.dw);
  auto* db = static_cast<Wide<T>*>(s.db);
  for (int64_t d = 0; d < s.D; ++d) {
    double sum_w = s.accumulate ? dw[d] : 0.0;
    double sum_b = s.accumulate && db != nullptr ? db[d] : 0.0;
    for (int64_t n = 0; n < s.N; ++n) {
      const double g = dy[n * s.D + d];
      sum_w += g * (double{x[n * s.D + d]} - mean[n]) * rstd[n];
      sum_b += g;
    }
    dw[d] = static_cast<Wide<T>>(sum_w);
    if (db != nullptr) db[d] = static_cast<Wide<T>>(sum_b);
  }
}

template <typename T>
void RmsNormForward(Stream& stream, const RmsNormForwardArgs& s) {
  const T* x = Summed<T>(stream, s);
  const T* w = static_cast<const T*>(s.w);
  T* y = static_cast<T*>(s.y);
  for (int64_t n = 0; n < s.N; ++n, x += s.D, y += s.D) {
    double square = 0.0;
    for (int64_t d = 0; d < s.D; ++d) square += double{x[d]} * x[d];
    square /= static_cast<double>(s.D);
    const double rstd = 1.0 / std::sqrt(square + s.eps);
    for (int64_t d = 0; d < s.D; ++d) {
      y[d] = static_cast<T>(x[d] * rstd * w[d]);
    }
    if (s.rstd != nullptr)
      static_cast<Wide<T>*>(s.rstd)[n] = static_cast<Wide<T>>(rstd);
  }
}

template <typename T>
void RmsNormBackwardInput(Stream&, const RmsNormBackwardInputArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  const T* x = static_cast<const T*>(s.x);
  const T* w = static_cast<const T*>(s.w);
  T* dx = static_cast<T*>(s.dx);
  for (int64_t n = 0; n < s.N; ++n, dy += s.D, x += s.D, dx += s.D) {
    const double rstd = static_cast<const Wide<T>*>(s.rstd)[n];
    double mean_gx = 0.0;
    for (int64_t d = 0; d < s.D; ++d) {
      mean_gx += double{dy[d]} * w[d] * x[d] * rstd;
    }
    mean_gx /= static_cast<double>(s.D);
    for (int64_t d = 0; d < s.D; ++d) {
      const double g = double{dy[d]} * w[d];
      dx[d] = static_cast<T>(rstd * (g - x[d] * rstd * mean_gx) +
                             Added<T>(s, n * s.D + d));
    }
  }
}

template <typename T>
void RmsNormBackwardWeight(Stream&, const RmsNormBackwardWeightArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  const T* x = static_cast<const T*>(s.x);
  const auto* rstd = static_cast<const Wide<T>*>(s.rstd);
  auto* dw = static_cast<Wide<T>*>(s.dw);
  for (int64_t d = 0; d < s.D; ++d) {
    double sum = s.accumulate ? dw[d] : 0.0;
    for (int64_t n = 0; n < s.N; ++n) {
      sum += double{dy[n * s.D + d]} * x[n * s.D + d] * rstd[n];
    }
    dw[d] = static_cast<Wide<T>>(sum);
  }
}

#define DELINK_INSTANTIATE(T)                                                 \
  template void LayerNormForward<T>(Stream&, const LayerNormForwardArgs&);    \
  template void LayerNormBackwardInput<T>(Stream&,                            \
                                          const LayerNormBackwardInputArgs&); \
  template void LayerNormBackwardWeight<T>(                                   \
      Stream&, const LayerNormBackwardWeightArgs&);                           \
  template void RmsNormForward<T>(Stream&, const RmsNormForwardArgs&);        \
  template void RmsNormBackwardInput<T>(Stream&,                              \
                                        const RmsNormBackwardInputArgs&);     \
  template void RmsNormBackwardWeight<T>(Stream&,                             \
                                         const RmsNormBackwardWeightArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
