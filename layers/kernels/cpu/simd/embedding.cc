#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// Columns that one thread scatters into; no two threads share a column, so the
// order of the sums is that of the tokens.
constexpr int64_t kColumnBlock = 64;

// Whether this part of the table has `row`, a token less first_token.
template <typename Args>
DELINK_INLINE bool IsHere(const Args& s, int64_t row) {
  return !s.partial || (row >= 0 && row < s.V);
}

template <typename T>
DELINK_INLINE void AddTo(int64_t D, const T* from, float* to) {
  ForRow(D, [&](auto load, auto store)
                DELINK_LAMBDA { store(to, load(to) + load(from)); });
}

template <typename P>
void Zero(P* to, int64_t rows, int64_t D) {
#pragma omp parallel for schedule(static) if (rows * D > kParallelFrom)
  for (int64_t row = 0; row < rows; ++row) {
    std::memset(to + row * D, 0, D * sizeof(P));
  }
}

// For a gradient of type T: sums the rows of a token in f32 and rounds once.
template <typename T>
void SumTokens(const EmbeddingBackwardWeightArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  T* dw = static_cast<T*>(s.dw);
  if (!s.accumulate) Zero(dw, s.V, s.D);
  const int32_t* const order = OrderByToken(s.tokens, s.N);
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t d = 0; d < s.D; d += kColumnBlock) {
    const int64_t columns = s.D - d < kColumnBlock ? s.D - d : kColumnBlock;
    for (int64_t i = 0, end = 0; i < s.N; i = end) {
      const int32_t token = s.tokens[order[i]];
      while (end < s.N && s.tokens[order[end]] == token) ++end;
      const int64_t row = token - s.first_token;
      if (!IsHere(s, row)) continue;
      T* to = dw + row * s.D + d;
      ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
        Vec sum{};
        for (int64_t j = i; j < end; ++j) {
          sum += load(dy + order[j] * s.D + d);
        }
        store(to, s.accumulate ? load(to) + sum : sum);
      });
    }
  }
}

template <typename T, typename P>
void SumSamples(const EmbeddingBackwardPositionArgs& s) {
  const T* dy = static_cast<const T*>(s.dy);
  P* dp = static_cast<P*>(s.dp);
  const int64_t end = s.first_position + s.T;
  if (!s.accumulate) {
    Zero(dp, s.first_position, s.D);
    Zero(dp + end * s.D, s.Tmax - end, s.D);
  }
#pragma omp parallel for schedule(static) if (s.B * s.T * s.D > kParallelFrom)
  for (int64_t t = 0; t < s.T; ++t) {
    P* to = dp + (s.first_position + t) * s.D;
    ForRow(s.D, [&](auto load, auto store) DELINK_LAMBDA {
      Vec sum = s.accumulate ? load(to) : Vec{};
      for (int64_t b = 0; b < s.B; ++b) sum += load(dy + (b * s.T + t) * s.D);
      store(to, sum);
    });
  }
}

}  // namespace

template <typename T>
void EmbeddingForward(Stream&, const EmbeddingForwardArgs& s) {
  const T* w = static_cast<const T*>(s.w);
  const int64_t N = s.B * s.T;
#pragma omp parallel for schedule(static) if (N * s.D > kParallelFrom)
  for (int64_t n = 0; n < N; ++n) {
    const int64_t number = s.tokens[n] - s.first_token;
    T* y = static_cast<T*>(s.y) + n * s.D;
    if (!IsHere(s, number)) {
      std::memset(y, 0, s.D * sizeof(T));
      continue;
    }
    const T* row = w + number * s.D;
    if (s.p == nullptr) {
      std::memcpy(y, row, s.D * sizeof(T));
      continue;
    }
    const int64_t position =
        s.positions != nullptr ? s.positions[n] : s.first_position + n % s.T;
    const T* p = static_cast<const T*>(s.p) + position * s.D;
    ForRow(s.D, [&](auto load, auto store)
                    DELINK_LAMBDA { store(y, load(row) + load(p)); });
  }
}

template <typename T>
void EmbeddingBackwardWeight(Stream&, const EmbeddingBackwardWeightArgs& s) {
  if (s.narrow) return SumTokens<T>(s);
  const T* dy = static_cast<const T*>(s.dy);
  float* dw = static_cast<float*>(s.dw);
  if (!s.accumulate) Zero(dw, s.V, s.D);
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t d = 0; d < s.D; d += kColumnBlock) {
    const int64_t columns = s.D - d < kColumnBlock ? s.D - d : kColumnBlock;
    for (int64_t n = 0; n < s.N; ++n) {
      const int64_t row = s.tokens[n] - s.first_token;
      if (!IsHere(s, row)) continue;
      AddTo(columns, dy + n * s.D + d, dw + row * s.D + d);
    }
  }
}

template <typename T>
void EmbeddingBackwardPosition(Stream&,
                               const EmbeddingBackwardPositionArgs& s) {
  if (s.narrow) return SumSamples<T, T>(s);
  SumSamples<T, float>(s);
}

template void EmbeddingForward<float>(Stream&, const EmbeddingForwardArgs&);
template void EmbeddingForward<BFloat16>(Stream&, const EmbeddingForwardArgs&);
template void EmbeddingBackwardWeight<float>(
    Stream&, const EmbeddingBackwardWeightArgs&);
template void EmbeddingBackwardWeight<BFloat16>(
    Stream&, const EmbeddingBackwardWeightArgs&);
template void EmbeddingBackwardPosition<float>(
    Stream&, const EmbeddingBackwardPositionArgs&);
template void EmbeddingBackwardPosition<BFloat16>(
    Stream&, const EmbeddingBackwardPositionArgs&);

}  // namespace delink::cpu::DELINK_SIMD
