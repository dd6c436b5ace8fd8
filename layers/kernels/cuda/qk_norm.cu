#include <algorithm>

#include "layers/kernels/cuda/columns.cuh"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/qk_norm.cuh"

namespace delink::cuda {
namespace {

constexpr int kHeld = 1;  // packs of a head that a thread keeps

template <typename Args>
int64_t HeadsOf(const Args& s) {
  return s.N * (s.H + 2 * s.Hkv);
}

}  // namespace

template <typename T>
void QkNormForward(Stream& stream, const QkNormForwardArgs& s) {
  using E = DeviceType<T>;
  LaunchRows<E, kHeld, kHeld>(
      stream, HeadsOf(s), s.Dh, CanPackAll<E>(s.Dh, s.x, s.q_w, s.k_w, s.y),
      [&]<typename Team, int kWidth, int kKept>(const RowLaunch& shape) {
        Launch(QkNormForwardKernel<Team, E, kWidth, kKept>, shape.grid,
               shape.block, 0, stream, shape.team_size, s.N,
               static_cast<int>(s.H), static_cast<int>(s.Hkv),
               Divisor(s.H + 2 * s.Hkv), static_cast<int>(s.Dh),
               static_cast<float>(s.eps), static_cast<const E*>(s.x),
               static_cast<const E*>(s.q_w), static_cast<const E*>(s.k_w),
               static_cast<E*>(s.y), static_cast<float*>(s.rstd));
      });
}

template <typename T>
void QkNormBackwardInput(Stream& stream, const QkNormBackwardInputArgs& s) {
  using E = DeviceType<T>;
  LaunchRows<E, kHeld, kHeld>(
      stream, HeadsOf(s), s.Dh,
      CanPackAll<E>(s.Dh, s.dy, s.x, s.q_w, s.k_w, s.dx),
      [&]<typename Team, int kWidth, int kKept>(const RowLaunch& shape) {
        Launch(QkNormBackwardInputKernel<Team, E, kWidth, kKept>, shape.grid,
               shape.block, 0, stream, shape.team_size, s.N,
               static_cast<int>(s.H), static_cast<int>(s.Hkv),
               Divisor(s.H + 2 * s.Hkv), static_cast<int>(s.Dh),
               static_cast<const E*>(s.dy), static_cast<const E*>(s.x),
               static_cast<const E*>(s.q_w), static_cast<const E*>(s.k_w),
               static_cast<const float*>(s.rstd), static_cast<E*>(s.dx));
      });
}

template <typename T>
void QkNormBackwardWeight(Stream& stream, const QkNormBackwardWeightArgs& s) {
  using E = DeviceType<T>;
  const HeadTerms<E> terms = {
      .dy = static_cast<const E*>(s.dy),
      .x = static_cast<const E*>(s.x),
      .rstd = static_cast<const float*>(s.rstd),
      .D = s.Dh,
      .row_heads = s.row_heads,
      .rstd_heads = s.rstd_heads,
      .first_head = s.first_head,
      .heads = s.heads,
      .by_heads = Divisor(std::max<int64_t>(s.heads, 1))};
  SumColumns<E>(
      stream, terms, s.N * s.heads, s.Dh, CanPackAll<E>(s.Dh, s.dy, s.x),
      {.outputs = {static_cast<float*>(s.dw)}, .accumulate = s.accumulate});
}

#define DELINK_INSTANTIATE(T)                                           \
  template void QkNormForward<T>(Stream&, const QkNormForwardArgs&);    \
  template void QkNormBackwardInput<T>(Stream&,                         \
                                       const QkNormBackwardInputArgs&); \
  template void QkNormBackwardWeight<T>(Stream&,                        \
                                        const QkNormBackwardWeightArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cuda
