#include <algorithm>

#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/pointwise.cuh"

namespace delink::cuda {
namespace {

// At most two inputs; F may have fewer.
template <typename F, typename T>
void Map(Stream& stream, int64_t count, const void* a, const void* b, void* y) {
  Inputs<T, F::kInputs> inputs;
  inputs.x[0] = static_cast<const T*>(a);
  if constexpr (F::kInputs == 2) inputs.x[1] = static_cast<const T*>(b);
  const bool aligned = CanPack<T>(a, 0) && CanPack<T>(b, 0) && CanPack<T>(y, 0);
  const int64_t packs = aligned ? count / Pack<T>::kSize : 0;
  // Packs or, if there are none, elements.
  const int64_t work =
      aligned ? (count + Pack<T>::kSize - 1) / Pack<T>::kSize : count;
  const int64_t block = int64_t{kPointwiseThreads} * kUnroll;
  const int64_t blocks = std::min<int64_t>(
      (work + block - 1) / block, int64_t{32} * InfoOf(stream).multiprocessors);
  Launch(MapKernel<F, T>, dim3(static_cast<unsigned>(blocks)),
         dim3(kPointwiseThreads), 0, stream, count, packs, inputs,
         static_cast<T*>(y));
}

}  // namespace

template <typename T>
void GeluForward(Stream& stream, const GeluForwardArgs& s) {
  using E = DeviceType<T>;
  if (s.form == GeluForm::kTanh) {
    Map<TanhGelu, E>(stream, s.count, s.x, nullptr, s.y);
  } else {
    Map<ErfGelu, E>(stream, s.count, s.x, nullptr, s.y);
  }
}

template <typename T>
void GeluBackward(Stream& stream, const GeluBackwardArgs& s) {
  using E = DeviceType<T>;
  if (s.form == GeluForm::kTanh) {
    Map<TanhGeluBackward, E>(stream, s.count, s.dy, s.x, s.dx);
  } else {
    Map<ErfGeluBackward, E>(stream, s.count, s.dy, s.x, s.dx);
  }
}

template <typename T>
void Add(Stream& stream, const AddArgs& s) {
  Map<Sum, DeviceType<T>>(stream, s.count, s.a, s.b, s.y);
}

template <typename T>
void Accumulate(Stream& stream, const AccumulateArgs& s) {
  Map<Sum, DeviceType<T>>(stream, s.count, s.y, s.x, s.y);
}

template <typename T>
void Widen(Stream& stream, const WidenArgs& s) {
  if (s.count == 0) return;
  Launch(WidenKernel<DeviceType<T>>,
         dim3(static_cast<unsigned>((s.count + kPointwiseThreads - 1) /
                                    kPointwiseThreads)),
         dim3(kPointwiseThreads), 0, stream, s);
}

template <typename T>  // the same for both
void RoundGradient(Stream& stream, const RoundGradientArgs& s) {
  if (s.count == 0) return;
  constexpr int kSize = Pack<__nv_bfloat16>::kSize;
  const bool packed = CanPack<float>(s.x, 0) && CanPack<__nv_bfloat16>(s.y, 0);
  const int64_t block = int64_t{kPointwiseThreads} * (packed ? kSize : 1);
  Launch(packed ? &RoundGradientKernel<kSize> : &RoundGradientKernel<1>,
         dim3(static_cast<unsigned>((s.count + block - 1) / block)),
         dim3(kPointwiseThreads), 0, stream, s);
}

#define DELINK_INSTANTIATE(T)                                      \
  template void GeluForward<T>(Stream&, const GeluForwardArgs&);   \
  template void GeluBackward<T>(Stream&, const GeluBackwardArgs&); \
  template void Add<T>(Stream&, const AddArgs&);                   \
  template void Accumulate<T>(Stream&, const AccumulateArgs&);     \
  template void Widen<T>(Stream&, const WidenArgs&);               \
  template void RoundGradient<T>(Stream&, const RoundGradientArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cuda
