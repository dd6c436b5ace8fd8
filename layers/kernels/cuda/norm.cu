#include "layers/kernels/cuda/columns.cuh"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/norm.cuh"

namespace delink::cuda {
namespace {

// Packs of a row that a thread keeps: a lane of a warp, and a thread of a block
// of up to 1024, which has fewer registers. They are the same whether forward
// adds or not, so that its results have the same bits.
constexpr int kHeld = 4, kHeldByBlock = 2;

}  // namespace

template <typename T, bool kAdds>
void LayerNormForwardBy(Stream& stream, const LayerNormForwardArgs& s) {
  using E = DeviceType<T>;
  LaunchRows<E, kHeld, kHeldByBlock>(
      stream, s.N, s.D, CanPackAll<E>(s.D, s.x, s.w, s.b, s.y, s.add, s.sum),
      [&]<typename Team, int kWidth, int kKept>(const RowLaunch& shape) {
        Launch(LayerNormForwardKernel<Team, E, kWidth, kKept, kAdds>,
               shape.grid, shape.block, 0, stream, shape.team_size, s.N,
               static_cast<int>(s.D), static_cast<float>(s.eps),
               static_cast<const E*>(s.x), static_cast<const E*>(s.add),
               static_cast<E*>(s.sum), static_cast<const E*>(s.w),
               static_cast<const E*>(s.b), static_cast<E*>(s.y),
               static_cast<float*>(s.mean), static_cast<float*>(s.rstd));
      });
}

template <typename T>
void LayerNormForward(Stream& stream, const LayerNormForwardArgs& s) {
  if (s.add != nullptr) {
    LayerNormForwardBy<T, true>(stream, s);
  } else {
    LayerNormForwardBy<T, false>(stream, s);
  }
}

template <typename T>
void LayerNormBackwardInput(Stream& stream,
                            const LayerNormBackwardInputArgs& s) {
  using E = DeviceType<T>;
  LaunchRows<E, kHeld, kHeldByBlock>(
      stream, s.N, s.D, CanPackAll<E>(s.D, s.dy, s.x, s.w, s.dx, s.add),
      [&]<typename Team, int kWidth, int kKept>(const RowLaunch& shape) {
        Launch(LayerNormBackwardInputKernel<Team, E, kWidth, kKept>, shape.grid,
               shape.block, 0, stream, shape.team_size, s.N,
               static_cast<int>(s.D), static_cast<const E*>(s.dy),
               static_cast<const E*>(s.x), static_cast<const E*>(s.w),
               static_cast<const float*>(s.mean),
               static_cast<const float*>(s.rstd), static_cast<const E*>(s.add),
               static_cast<E*>(s.dx));
      });
}

template <typename T>
void LayerNormBackwardWeight(Stream& stream,
                             const LayerNormBackwardWeightArgs& s) {
  using E = DeviceType<T>;
  const LayerNormTerms<E> terms = {static_cast<const E*>(s.dy),
                                   static_cast<const E*>(s.x),
                                   static_cast<const float*>(s.mean),
                                   static_cast<const float*>(s.rstd), s.D};
  SumColumns<E>(
      stream, terms, s.N, s.D, CanPackAll<E>(s.D, s.dy, s.x),
      {.outputs = {static_cast<float*>(s.dw), static_cast<float*>(s.db)},
       .accumulate = s.accumulate});
}

template <typename T, bool kAdds>
void RmsNormForwardBy(Stream& stream, const RmsNormForwardArgs& s) {
  using E = DeviceType<T>;
  LaunchRows<E, kHeld, kHeldByBlock>(
      stream, s.N, s.D, CanPackAll<E>(s.D, s.x, s.w, s.y, s.add, s.sum),
      [&]<typename Team, int kWidth, int kKept>(const RowLaunch& shape) {
        Launch(RmsNormForwardKernel<Team, E, kWidth, kKept, kAdds>, shape.grid,
               shape.block, 0, stream, shape.team_size, s.N,
               static_cast<int>(s.D), static_cast<float>(s.eps),
               static_cast<const E*>(s.x), static_cast<const E*>(s.add),
               static_cast<E*>(s.sum), static_cast<const E*>(s.w),
               static_cast<E*>(s.y), static_cast<float*>(s.rstd));
      });
}

template <typename T>
void RmsNormForward(Stream& stream, const RmsNormForwardArgs& s) {
  if (s.add != nullptr) {
    RmsNormForwardBy<T, true>(stream, s);
  } else {
    RmsNormForwardBy<T, false>(stream, s);
  }
}

template <typename T>
void RmsNormBackwardInput(Stream& stream, const RmsNormBackwardInputArgs& s) {
  using E = DeviceType<T>;
  LaunchRows<E, kHeld, kHeldByBlock>(
      stream, s.N, s.D, CanPackAll<E>(s.D, s.dy, s.x, s.w, s.dx, s.add),
      [&]<typename Team, int kWidth, int kKept>(const RowLaunch& shape) {
        Launch(RmsNormBackwardInputKernel<Team, E, kWidth, kKept>, shape.grid,
               shape.block, 0, stream, shape.team_size, s.N,
               static_cast<int>(s.D), static_cast<const E*>(s.dy),
               static_cast<const E*>(s.x), static_cast<const E*>(s.w),
               static_cast<const float*>(s.rstd), static_cast<const E*>(s.add),
               static_cast<E*>(s.dx));
      });
}

template <typename T>
void RmsNormBackwardWeight(Stream& stream, const RmsNormBackwardWeightArgs& s) {
  using E = DeviceType<T>;
  const HeadTerms<E> terms = {static_cast<const E*>(s.dy),
                              static_cast<const E*>(s.x),
                              static_cast<const float*>(s.rstd), s.D};
  SumColumns<E>(
      stream, terms, s.N, s.D, CanPackAll<E>(s.D, s.dy, s.x),
      {.outputs = {static_cast<float*>(s.dw)}, .accumulate = s.accumulate});
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
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cuda
