#include "layers/kernels/cpu/cpu.h"

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/matmul.h"
#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {
namespace {

template <typename T>
Kernels Best() {
  for (const Target& target : Targets()) {
    if (!target.supported) continue;
    Kernels kernels = std::is_same_v<T, float> ? *target.f32 : *target.bf16;
    ChooseMatmul<T>(&kernels);
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

}  // namespace delink::cpu
