#include <cstdint>

#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

// The row of a token among those from first_token on, or -1 if it is not here.
template <typename Args>
int64_t RowOf(const Args& s, int64_t n) {
  const int64_t row = s.tokens[n] - s.first_token;
  return !s.partial || (row >= 0 && row < s.V) ? row : -1;
}

}  // namespace

template <typename T>
void EmbeddingForward(Stream&, const EmbeddingForwardArgs& s) {
  const T* w = static_cast<const T*>(s.w);
  const T* p = static_cast<const T*>(s.p);
  T* y = static_cast<T*>(s.y);
  for (int64_t n = 0; n < s.B * s.T; ++n) {
    const int64_t position =
        s.positions != nullptr ? s.positions[n] : s.first_position + n % s.T;
    const int64_t row = RowOf(s, n);
    for (int64_t d = 0; d < s.D; ++d) {
      const double weight = row < 0 ? 0.0 : double{w[row * s.D + d]};
      y[n * s.D + d] = static_cast<T>(
          p != nullptr ? weight + p[position * s.D + d] : weight);
    }
  }
}

namespace {

// Rows are summed in double before they are stored, one token id at a time.
template <typename T, typename P>
void SumTokens(const EmbeddingBackwardWeightArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  P* dw = static_cast<P*>(s.dw);
  for (int64_t v = 0; v < s.V; ++v) {
    for (int64_t d = 0; d < s.D; ++d) {
      double sum = s.accumulate ? dw[v * s.D + d] : 0.0;
      for (int64_t n = 0; n < s.N; ++n) {
        if (RowOf(s, n) == v) sum += dy[n * s.D + d];
      }
      dw[v * s.D + d] = static_cast<P>(sum);
    }
  }
}

template <typename T, typename P>
void SumSamples(const EmbeddingBackwardPositionArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  P* dp = static_cast<P*>(s.dp);
  for (int64_t position = 0; position < s.Tmax; ++position) {
    const int64_t t = position - s.first_position;
    const bool used = t >= 0 && t < s.T;
    for (int64_t d = 0; d < s.D; ++d) {
      double sum = s.accumulate ? dp[position * s.D + d] : 0.0;
      for (int64_t b = 0; used && b < s.B; ++b) {
        sum += dy[(b * s.T + t) * s.D + d];
      }
      dp[position * s.D + d] = static_cast<P>(sum);
    }
  }
}

}  // namespace

template <typename T>
void EmbeddingBackwardWeight(Stream&, const EmbeddingBackwardWeightArgs& s) {
  if (s.narrow) return SumTokens<T, T>(s);
  SumTokens<T, Wide<T>>(s);
}

template <typename T>
void EmbeddingBackwardPosition(Stream&,
                               const EmbeddingBackwardPositionArgs& s) {
  if (s.narrow) return SumSamples<T, T>(s);
  SumSamples<T, Wide<T>>(s);
}

#define DELINK_INSTANTIATE(T)                                              \
  template void EmbeddingForward<T>(Stream&, const EmbeddingForwardArgs&); \
  template void EmbeddingBackwardWeight<T>(                                \
      Stream&, const EmbeddingBackwardWeightArgs&);                        \
  template void EmbeddingBackwardPosition<T>(                              \
      Stream&, const EmbeddingBackwardPositionArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
