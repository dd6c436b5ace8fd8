#include "layers/kernels/cuda/columns.cuh"
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {

template <typename T>
void BiasGrad(Stream& stream, const BiasGradArgs& s) {
  using E = DeviceType<T>;
  const PlainTerms<E> terms = {static_cast<const E*>(s.dy), s.D};
  SumColumns<E>(
      stream, terms, s.N, s.D, CanPack<E>(s.dy, s.D),
      {.outputs = {static_cast<float*>(s.db)}, .accumulate = s.accumulate});
}

template void BiasGrad<float>(Stream&, const BiasGradArgs&);
template void BiasGrad<BFloat16>(Stream&, const BiasGradArgs&);

}  // namespace delink::cuda
