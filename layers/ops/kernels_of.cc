#include "layers/ops/kernels_of.h"

#include "framework/base/check.h"

namespace delink::ops {

const Kernels& KernelsOf(const Tape& tape, DType dtype) {
  const Kernels* const kernels = FindKernels(tape.device().kind(), dtype);
  DELINK_CHECK(kernels != nullptr)
      << "no kernels for " << ToString(dtype) << " on " << tape.device().name();
  return *kernels;
}

}  // namespace delink::ops
