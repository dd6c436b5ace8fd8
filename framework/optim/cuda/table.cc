#include "framework/optim/cuda/cuda.h"
#include "framework/optim/find_kernels.h"

namespace delink::cuda {

const OptimKernels* OptimTable(DType dtype) {
#define DELINK_FUNCTION(entry, Function, Args) .entry = Function,
  static constexpr OptimKernels kF32 = {DELINK_OPTIM_KERNELS(DELINK_FUNCTION)};
#undef DELINK_FUNCTION
  return dtype == DType::kF32 ? &kF32 : nullptr;
}

}  // namespace delink::cuda
