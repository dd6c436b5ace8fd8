// What launch.cuh of the emulation stands on.
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstdint>
#include <memory>

namespace delink::simt {

struct KernelLaunch {
  const void* function;
  dim3 grid;
  dim3 block;
  int64_t shared_bytes;
  // Calls the kernel with its arguments, which are in `closure` or a copy of
  // its bytes.
  void (*call)(const void* closure);
  std::shared_ptr<const void> closure;
  int64_t closure_bytes;
};

void LaunchKernel(cudaStream_t stream, const KernelLaunch& launch);

}  // namespace delink::simt
