#include "framework/optim/find_kernels.h"

namespace delink {

const OptimKernels* FindOptimKernels(DeviceKind device, DType dtype) {
  switch (device) {
    case DeviceKind::kCpu:
    case DeviceKind::kTimedCpu:
      return cpu::OptimTable(dtype);
    case DeviceKind::kMeta:
    case DeviceKind::kMetaCuda:
      return meta::OptimTable(dtype);
    case DeviceKind::kCuda:
    case DeviceKind::kTimedCuda:
      return cuda::OptimTable(dtype);
  }
  return nullptr;
}

}  // namespace delink
