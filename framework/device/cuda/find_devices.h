// Which CUDA devices this machine has that we can use, and why it has none.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace delink::cuda {

struct DeviceFacts {
  std::string name;  // "NVIDIA H200, 139.8 GiB, sm_90"
  int multiprocessors = 0;
  int64_t cache = 0;  // bytes of the L2 cache
};

// What is wrong where cudaGetDeviceCount gave `error`.
absl::Status NoDevices(int error);

// Of a device that there is. FailedPrecondition where no kernels are compiled
// for its architecture.
absl::Status Examine(int ordinal, DeviceFacts* facts);

}  // namespace delink::cuda
