#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/find_kernels.h"

namespace delink::cpu {
namespace {

#define DELINK_OF_T(entry, Function, Args) .entry = Function<T>,
template <typename T>
constexpr OptimKernels kTable = {DELINK_OPTIM_KERNELS(DELINK_OF_T)};
#undef DELINK_OF_T

}  // namespace

const OptimKernels* OptimTable(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return &kTable<float>;
    case DType::kF64:
      return &kTable<double>;
    default:
      return nullptr;
  }
}

}  // namespace delink::cpu
