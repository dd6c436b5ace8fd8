#include "layers/ops/accumulate.h"

#include <cstdint>

#include "framework/base/check.h"
#include "layers/kernels/find_kernels.h"

namespace delink {

void Accumulate(Device& device, Stream& stream, DType dtype, void* y,
                const void* x, int64_t n) {
  const Kernels* const kernels = FindKernels(device.kind(), dtype);
  DELINK_CHECK(kernels != nullptr) << ToString(dtype) << device.name();
  kernels->accumulate(stream, {.count = n, .x = x, .y = y});
}

}  // namespace delink
