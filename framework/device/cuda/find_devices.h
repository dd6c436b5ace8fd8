// Which CUDA devices of this machine Delink can use, and why there are none.
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

// What is wrong if cudaGetDeviceCount returned `error`.
absl::Status NoDevices(int error);

// The facts of an existing device. FailedPrecondition: no kernels are compiled
// for its architecture.
absl::Status Examine(int ordinal, DeviceFacts* facts);

}  // namespace delink::cuda
