// RMS norm of the heads of a packed projection. Its weights are short and
// shared by many heads, so their gradient is computed by narrow column ranges.
#include "layers/kernels/cpu/simd/norm_rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kColumns = 32;
constexpr int64_t kTokens = 8;  // summed separately, for less rounding

const float* Floats(const void* p) { return static_cast<const float*>(p); }
float* Floats(void* p) { return static_cast<float*>(p); }

template <typename T>
void Sum(const QkNormBackwardWeightArgs& s, int64_t first, int64_t columns) {
  float total[kColumns] = {}, block[kColumns];
  for (int64_t n0 = 0; n0 < s.N; n0 += kTokens) {
    std::memset(block, 0, sizeof(block));
    for (int64_t n = n0; n < s.N && n < n0 + kTokens; ++n) {
      for (int64_t h = s.first_head; h < s.first_head + s.heads; ++h) {
        const int64_t at = (n * s.row_heads + h) * s.Dh + first;
        const T* dy = static_cast<const T*>(s.dy) + at;
        const T* x = static_cast<const T*>(s.x) + at;
        const float rstd = Floats(s.rstd)[n * s.rstd_heads + h];
        ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
          store(block, Fma(load(dy), load(x) * rstd, load(block)));
        });
      }
    }
    for (int64_t d = 0; d < columns; ++d) total[d] += block[d];
  }
  float* dw = Floats(s.dw) + first;
  for (int64_t d = 0; d < columns; ++d) {
    dw[d] = s.accumulate ? dw[d] + total[d] : total[d];
  }
}

}  // namespace

template <typename T>
void QkNormForward(Stream&, const QkNormForwardArgs& s) {
  const int64_t normed = s.H + s.Hkv, row = (s.H + 2 * s.Hkv) * s.Dh;
  if (s.Dh == 0) return;
#pragma omp parallel for schedule(static) if (s.N * row > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const T* x = static_cast<const T*>(s.x) + n * row;
    T* y = static_cast<T*>(s.y) + n * row;
    for (int64_t h = 0; h < normed; ++h) {
      const T* w = static_cast<const T*>(h < s.H ? s.q_w : s.k_w);
      const float rstd = RmsNormRow(s.Dh, s.eps, x + h * s.Dh, w, y + h * s.Dh);
      if (s.rstd != nullptr) Floats(s.rstd)[n * normed + h] = rstd;
    }
    std::memcpy(y + normed * s.Dh, x + normed * s.Dh, s.Hkv * s.Dh * sizeof(T));
  }
}

template <typename T>
void QkNormBackwardInput(Stream&, const QkNormBackwardInputArgs& s) {
  const int64_t normed = s.H + s.Hkv, row = (s.H + 2 * s.Hkv) * s.Dh;
  if (s.Dh == 0) return;
#pragma omp parallel for schedule(static) if (s.N * row > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const T* dy = static_cast<const T*>(s.dy) + n * row;
    const T* x = static_cast<const T*>(s.x) + n * row;
    T* dx = static_cast<T*>(s.dx) + n * row;
    for (int64_t h = 0; h < normed; ++h) {
      const int64_t at = h * s.Dh;
      const T* w = static_cast<const T*>(h < s.H ? s.q_w : s.k_w);
      BackwardInputRow<false>(s.Dh, dy + at, x + at, w, 0.0F,
                              Floats(s.rstd)[n * normed + h], dx + at);
    }
    if (dx == dy) continue;
    std::memcpy(dx + normed * s.Dh, dy + normed * s.Dh,
                s.Hkv * s.Dh * sizeof(T));
  }
}

template <typename T>
void QkNormBackwardWeight(Stream&, const QkNormBackwardWeightArgs& s) {
  const int64_t blocks = (s.Dh + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static) if (s.N * s.heads * s.Dh > \
                                              kParallelFrom)
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kColumns, rest = s.Dh - first;
    Sum<T>(s, first, rest < kColumns ? rest : kColumns);
  }
}

template void QkNormForward<float>(Stream&, const QkNormForwardArgs&);
template void QkNormForward<BFloat16>(Stream&, const QkNormForwardArgs&);
template void QkNormBackwardInput<float>(Stream&,
                                         const QkNormBackwardInputArgs&);
template void QkNormBackwardInput<BFloat16>(Stream&,
                                            const QkNormBackwardInputArgs&);
template void QkNormBackwardWeight<float>(Stream&,
                                          const QkNormBackwardWeightArgs&);
template void QkNormBackwardWeight<BFloat16>(Stream&,
                                             const QkNormBackwardWeightArgs&);

}  // namespace delink::cpu::DELINK_SIMD
