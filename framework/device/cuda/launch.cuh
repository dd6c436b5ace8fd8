// The only way to launch kernels, and dynamic shared memory.
//
//   Launch(ScaleKernel<float>, {blocks}, {256}, 0, stream, x, factor, n);
//
// Device code is plain CUDA C++ that g++ reads too: no <<<>>>, inline PTX only
// behind small named functions. Tests compile it against another launch.cuh,
// which runs kernels on the CPU (docs/cuda.md).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "framework/base/check.h"
#include "framework/device/cuda/check.h"
#include "framework/device/cuda/scratch.h"
#include "framework/device/cuda/stream.h"

namespace delink::cuda {

// Enqueues kernel(args...) on `stream`. An empty grid launches nothing.
template <typename... P>
void Launch(void (*kernel)(P...), dim3 grid, dim3 block, int64_t shared_bytes,
            Stream& stream, std::type_identity_t<P>... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  DELINK_CHECK_LE(shared_bytes, kMostSharedBytes);
  // Makes the stream's device the thread's current one.
  const StreamInfo& info = InfoOf(stream);
  const void* const function = reinterpret_cast<const void*>(kernel);
  // A kernel that uses more than 48 KiB, static arrays included, must ask for
  // it. Static arrays are small, so this asks from 32 KiB of dynamic memory on.
  if (shared_bytes > 32 * 1024) {
    DELINK_CUDA_CHECK(cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(kMostSharedBytes)));
  }
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  DELINK_CUDA_CHECK(cudaLaunchKernel(function, grid, block, pointers,
                                     static_cast<size_t>(shared_bytes),
                                     info.handle));
}

// The block's dynamic shared memory, 16-byte aligned.
template <typename T>
__device__ T* DynamicShared() {
  extern __shared__ uint4 delink_dynamic_shared[];
  return reinterpret_cast<T*>(delink_dynamic_shared);
}

// 16 bytes of aligned memory, in one access.
__device__ inline uint4 Load16(const void* from) {
  return *static_cast<const uint4*>(from);
}
__device__ inline void Store16(void* to, uint4 bytes) {
  *static_cast<uint4*>(to) = bytes;
}

}  // namespace delink::cuda
