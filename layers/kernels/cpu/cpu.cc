#include "layers/kernels/cpu/cpu.h"

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cpu/matmul.h"
#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {
namespace {

// The chosen entries.
template <typename T>
struct Chosen {
  static void Matmul(Stream& stream, const MatmulArgs& args) {
    Table<T>().matmul(stream, args);
  }
  static void BiasGrad(Stream& stream, const BiasGradArgs& args) {
    Table<T>().bias_grad(stream, args);
  }
  static void GeluForward(Stream& stream, const GeluForwardArgs& args) {
    Table<T>().gelu_forward(stream, args);
  }
  static void GeluBackward(Stream& stream, const GeluBackwardArgs& args) {
    Table<T>().gelu_backward(stream, args);
  }
};

template <typename T>
using Made = Composed<Chosen<T>::Matmul, Chosen<T>::BiasGrad,
                      Chosen<T>::GeluForward, Chosen<T>::GeluBackward>;

template <typename T>
Kernels Best() {
  for (const InstructionSet& target : Targets()) {
    if (!target.supported) continue;
    Kernels kernels = std::is_same_v<T, float> ? *target.f32 : *target.bf16;
    if (std::is_same_v<T, float> || !target.multiplies_bf16) {
      ChooseMatmul<T>(&kernels);
    }
    kernels.matmul_gelu = Made<T>::MatmulGelu;
    kernels.matmul_gelu_backward = Made<T>::MatmulGeluBackward;
    kernels.matmul_bias_grad = Made<T>::MatmulBiasGrad;
    return kernels;
  }
  return {};  // unreachable: the last target always runs
}

}  // namespace

template <typename T>
const Kernels& Table() {
  static const Kernels kTable = Best<T>();
  return kTable;
}

template const Kernels& Table<float>();
template const Kernels& Table<BFloat16>();

bool MultipliesBf16() {
  for (const InstructionSet& target : Targets()) {
    if (target.supported && target.multiplies_bf16) return true;
  }
  return LibraryMultipliesBf16();
}

}  // namespace delink::cpu
