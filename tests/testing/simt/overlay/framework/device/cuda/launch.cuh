// Takes the place of framework/device/cuda/launch.cuh where device code is
// compiled for the emulated device: the same Launch and DynamicShared, and the
// part of CUDA's device code that g++ does not have.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "framework/device/cuda/check.h"
#include "framework/device/cuda/stream.h"
#include "tests/testing/simt/device_code.h"
#include "tests/testing/simt/launch.h"

// One block runs at a time, so what its threads share may as well be the
// program's own data.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace delink::cuda {

template <typename... P>
void Launch(void (*kernel)(P...), dim3 grid, dim3 block, int64_t shared_bytes,
            Stream& stream, std::type_identity_t<P>... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "arguments of kernels are copied as bytes");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const auto call = [kernel, args...] { kernel(args...); };
  using Call = decltype(call);
  simt::LaunchKernel(InfoOf(stream).handle,
                     {.function = reinterpret_cast<const void*>(kernel),
                      .grid = grid,
                      .block = block,
                      .shared_bytes = shared_bytes,
                      .call = [](const void* c) { (*static_cast<Call*>(c))(); },
                      .closure = std::make_shared<Call>(call),
                      .closure_bytes = sizeof(Call)});
}

// The block's dynamic shared memory, 16-byte aligned.
template <typename T>
T* DynamicShared() {
  return reinterpret_cast<T*>(simt_dynamic_shared);
}

// 16 bytes of aligned memory, in one access: of a struct's members g++ would
// make one each.
using Bytes16 [[gnu::may_alias]] = unsigned __int128;
inline uint4 Load16(const void* from) {
  return std::bit_cast<uint4>(*static_cast<const Bytes16*>(from));
}
inline void Store16(void* to, uint4 bytes) {
  *static_cast<Bytes16*>(to) = std::bit_cast<unsigned __int128>(bytes);
}

}  // namespace delink::cuda
