// A build without CUDA: no kernels for its devices.
#include "framework/optim/find_kernels.h"

namespace delink::cuda {

const OptimKernels* OptimTable(DType) { return nullptr; }

}  // namespace delink::cuda
