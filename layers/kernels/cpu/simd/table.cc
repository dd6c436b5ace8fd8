#include "framework/tensor/bfloat16.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {

namespace {

template <typename T>
using Made = Composed<Matmul<T>, BiasGrad<T>, GeluForward<T>, GeluBackward<T>>;

}  // namespace

template <typename T>
void MatmulGelu(Stream& stream, const MatmulGeluArgs& args) {
  Made<T>::MatmulGelu(stream, args);
}

template <typename T>
void MatmulGeluBackward(Stream& stream, const MatmulGeluBackwardArgs& args) {
  Made<T>::MatmulGeluBackward(stream, args);
}

template <typename T>
void MatmulBiasGrad(Stream& stream, const MatmulBiasGradArgs& args) {
  Made<T>::MatmulBiasGrad(stream, args);
}

namespace {

template <typename T>
constexpr Kernels kOf = DELINK_TABLE_OF_T;

}  // namespace

const Kernels kF32 = kOf<float>;
const Kernels kBf16 = kOf<BFloat16>;

}  // namespace delink::cpu::DELINK_SIMD
