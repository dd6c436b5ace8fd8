#include <algorithm>

#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/rotary.cuh"

namespace delink::cuda {
namespace {

template <typename T, int kWidth>
void Turn(Stream& stream, const RotaryArgs& s) {
  // Samples share the sines of a position, as long as all multiprocessors have
  // work.
  const int64_t wanted = int64_t{8} * InfoOf(stream).multiprocessors;
  const int64_t blocks_each =
      s.positions != nullptr
          ? s.B
          : std::clamp<int64_t>((wanted + s.T - 1) / s.T, 1, s.B);
  const RotaryShape shape = {
      .B = s.B,
      .T = s.T,
      .row = s.row,
      .heads = static_cast<int>(s.heads),
      .Dh = static_cast<int>(s.Dh),
      .first_position = s.first_position,
      .positions = s.positions,
      .samples_each = (s.B + blocks_each - 1) / blocks_each,
      .inverse = s.inverse,
      .by_token = Divisor(s.heads * (s.angles->pairs / kWidth)),
      .by_head = Divisor(s.angles->pairs / kWidth)};
  const int64_t parts = (s.B + shape.samples_each - 1) / shape.samples_each;
  const auto kernel = s.angles->pairing == RotaryPairing::kHalf
                          ? RotaryKernel<T, kWidth, true>
                          : RotaryKernel<T, kWidth, false>;
  Launch(kernel, dim3(static_cast<unsigned>(s.T * parts)), dim3(kRotaryThreads),
         0, stream, shape, *s.angles, static_cast<T*>(s.x));
}

}  // namespace

template <typename T>
void Rotary(Stream& stream, const RotaryArgs& s) {
  using E = DeviceType<T>;
  if (s.B == 0 || s.T == 0 || s.heads == 0 || s.angles->pairs == 0) return;
  if (CanPack<E>(s.x, s.row) && CanPack<E>(s.x, s.Dh) &&
      CanPack<E>(s.x, s.angles->pairs)) {
    Turn<E, Pack<E>::kSize>(stream, s);
  } else {
    Turn<E, 1>(stream, s);
  }
}

template void Rotary<float>(Stream&, const RotaryArgs&);
template void Rotary<BFloat16>(Stream&, const RotaryArgs&);

}  // namespace delink::cuda
