// A build without CUDA: no kernels for its devices.
#include "framework/optim/kernels.h"

namespace delink::cuda {

const OptimKernels* OptimTable(DType) { return nullptr; }

}  // namespace delink::cuda
