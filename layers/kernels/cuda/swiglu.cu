#include <algorithm>

#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/swiglu.cuh"

namespace delink::cuda {
namespace {

dim3 GridFor(Stream& stream, int64_t packs) {
  return dim3(static_cast<unsigned>(
      std::min((packs + kSwiGluThreads - 1) / kSwiGluThreads,
               int64_t{32} * InfoOf(stream).multiprocessors)));
}

template <typename T, int kWidth>
void Forward(Stream& stream, const SwiGluForwardArgs& s) {
  if (s.N == 0 || s.F == 0) return;
  const int64_t each = s.F / kWidth;
  Launch(SwiGluForwardKernel<T, kWidth>, GridFor(stream, s.N * each),
         dim3(kSwiGluThreads), 0, stream, s.N * each, s.F, Divisor(each),
         static_cast<const T*>(s.x), static_cast<T*>(s.y));
}

template <typename T, int kWidth>
void Backward(Stream& stream, const SwiGluBackwardArgs& s) {
  if (s.N == 0 || s.F == 0) return;
  const int64_t each = s.F / kWidth;
  Launch(SwiGluBackwardKernel<T, kWidth>, GridFor(stream, s.N * each),
         dim3(kSwiGluThreads), 0, stream, s.N * each, s.F, Divisor(each),
         static_cast<const T*>(s.dy), static_cast<const T*>(s.x),
         static_cast<T*>(s.dx));
}

}  // namespace

template <typename T>
void SwiGluForward(Stream& stream, const SwiGluForwardArgs& s) {
  using E = DeviceType<T>;
  if (CanPack<E>(s.x, s.F) && CanPack<E>(s.y, s.F)) {
    Forward<E, Pack<E>::kSize>(stream, s);
  } else {
    Forward<E, 1>(stream, s);
  }
}

template <typename T>
void SwiGluBackward(Stream& stream, const SwiGluBackwardArgs& s) {
  using E = DeviceType<T>;
  if (CanPack<E>(s.dy, s.F) && CanPack<E>(s.x, s.F) && CanPack<E>(s.dx, s.F)) {
    Backward<E, Pack<E>::kSize>(stream, s);
  } else {
    Backward<E, 1>(stream, s);
  }
}

template void SwiGluForward<float>(Stream&, const SwiGluForwardArgs&);
template void SwiGluForward<BFloat16>(Stream&, const SwiGluForwardArgs&);
template void SwiGluBackward<float>(Stream&, const SwiGluBackwardArgs&);
template void SwiGluBackward<BFloat16>(Stream&, const SwiGluBackwardArgs&);

}  // namespace delink::cuda
