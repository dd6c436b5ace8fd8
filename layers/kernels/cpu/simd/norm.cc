// Layer norm and RMS norm; ref/norm.cc has the formulas. Rows are independent.
// For sums over rows a thread owns a range of columns instead. It sums blocks
// of rows, and then the blocks.
#include "layers/kernels/cpu/simd/columns.h"
#include "layers/kernels/cpu/simd/norm_rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

const float* Floats(const void* p) { return static_cast<const float*>(p); }
float* Floats(void* p) { return static_cast<float*>(p); }

// Row n of a matrix with rows of D.
template <typename T>
const T* Row(const void* p, int64_t D, int64_t n) {
  return static_cast<const T*>(p) + n * D;
}
template <typename T>
T* Row(void* p, int64_t D, int64_t n) {
  return static_cast<T*>(p) + n * D;
}

// The row to normalise: row n of x, or of x + add, which is stored in `sum` and
// is still in the nearest cache when it is read again.
template <typename T, typename Args>
const T* SummedRow(const Args& s, int64_t n) {
  const T* x = Row<T>(s.x, s.D, n);
  if (s.add == nullptr) return x;
  const T* add = Row<T>(s.add, s.D, n);
  T* sum = Row<T>(s.sum, s.D, n);
  ForRow(s.D, [&](auto load, auto store)
                  DELINK_LAMBDA { store(sum, load(x) + load(add)); });
  return sum;
}

// Row n of `add`, which is added to a gradient, or null.
template <typename T, typename Args>
const T* AddedRow(const Args& s, int64_t n) {
  return s.add != nullptr ? Row<T>(s.add, s.D, n) : nullptr;
}

template <typename T>
void LayerNormRow(const LayerNormForwardArgs& s, int64_t n) {
  const T* x = SummedRow<T>(s, n);
  const T* w = static_cast<const T*>(s.w);
  const T* b = static_cast<const T*>(s.b);
  T* y = Row<T>(s.y, s.D, n);
  const float mean = Sum(x, s.D) / static_cast<float>(s.D);
  const float rstd = Rstd(SumSquares(x, s.D, mean), s.D, s.eps);
  ForRow(s.D, [&](auto load, auto store) DELINK_LAMBDA {
    const Vec scale = load(w), shift = b != nullptr ? load(b) : Vec{};
    store(y, Fma((load(x) - mean) * rstd, scale, shift));
  });
  if (s.rstd != nullptr) {
    Floats(s.mean)[n] = mean;
    Floats(s.rstd)[n] = rstd;
  }
}

}  // namespace

template <typename T>
void LayerNormForward(Stream&, const LayerNormForwardArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) LayerNormRow<T>(s, n);
}

template <typename T>
void RmsNormForward(Stream&, const RmsNormForwardArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const float rstd =
        RmsNormRow(s.D, s.eps, SummedRow<T>(s, n), static_cast<const T*>(s.w),
                   Row<T>(s.y, s.D, n));
    if (s.rstd != nullptr) Floats(s.rstd)[n] = rstd;
  }
}

template <typename T>
void LayerNormBackwardInput(Stream&, const LayerNormBackwardInputArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    BackwardInputRow<true>(s.D, Row<T>(s.dy, s.D, n), Row<T>(s.x, s.D, n),
                           static_cast<const T*>(s.w), Floats(s.mean)[n],
                           Floats(s.rstd)[n], Row<T>(s.dx, s.D, n),
                           AddedRow<T>(s, n));
  }
}

template <typename T>
void RmsNormBackwardInput(Stream&, const RmsNormBackwardInputArgs& s) {
  if (s.D == 0) return;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    BackwardInputRow<false>(s.D, Row<T>(s.dy, s.D, n), Row<T>(s.x, s.D, n),
                            static_cast<const T*>(s.w), 0.0F, Floats(s.rstd)[n],
                            Row<T>(s.dx, s.D, n), AddedRow<T>(s, n));
  }
}

template <typename T>
void LayerNormBackwardWeight(Stream&, const LayerNormBackwardWeightArgs& s) {
  SumColumns(ColumnSums<T>{.N = s.N,
                           .D = s.D,
                           .dy = static_cast<const T*>(s.dy),
                           .x = static_cast<const T*>(s.x),
                           .mean = Floats(s.mean),
                           .rstd = Floats(s.rstd),
                           .dw = Floats(s.dw),
                           .db = Floats(s.db),
                           .accumulate = s.accumulate});
}

template <typename T>
void RmsNormBackwardWeight(Stream&, const RmsNormBackwardWeightArgs& s) {
  SumColumns(ColumnSums<T>{.N = s.N,
                           .D = s.D,
                           .dy = static_cast<const T*>(s.dy),
                           .x = static_cast<const T*>(s.x),
                           .rstd = Floats(s.rstd),
                           .dw = Floats(s.dw),
                           .accumulate = s.accumulate});
}

template <typename T>
void BiasGrad(Stream&, const BiasGradArgs& s) {
  SumColumns(ColumnSums<T>{.N = s.N,
                           .D = s.D,
                           .dy = static_cast<const T*>(s.dy),
                           .db = Floats(s.db),
                           .accumulate = s.accumulate});
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
                                         const RmsNormBackwardWeightArgs&);   \
  template void BiasGrad<T>(Stream&, const BiasGradArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cpu::DELINK_SIMD
