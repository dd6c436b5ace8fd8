#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/matmul.cuh"

namespace delink::cuda {
namespace {

unsigned Tiles(int64_t size) {
  return static_cast<unsigned>((size + kMatmulTile - 1) / kMatmulTile);
}

}  // namespace

template <typename T>
void TiledMatmul(Stream& stream, const MatmulArgs& args) {
  using D = DeviceType<T>;
  const auto kernel = args.c_is_gradient ? TiledMatmulKernel<D, float>
                                         : TiledMatmulKernel<D, D>;
  Launch(kernel, {Tiles(args.m), Tiles(args.n)}, {kMatmulThreads}, 0, stream,
         args);
}

template void TiledMatmul<float>(Stream&, const MatmulArgs&);
template void TiledMatmul<BFloat16>(Stream&, const MatmulArgs&);

}  // namespace delink::cuda
