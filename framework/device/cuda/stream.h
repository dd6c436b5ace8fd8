// What those who launch kernels see of a stream of the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace delink {

class Stream;

namespace cuda {

class Libraries;

struct StreamInfo {
  cudaStream_t handle;
  // Memory for what a kernel needs inside one call: partial sums, cuBLASLt's
  // workspace. In the stream's order, so the next call may use it again. A
  // multiple of 256 bytes, at least kScratchBytes, at an address that is one.
  void* scratch;
  int64_t scratch_bytes;
  int multiprocessors;
  Libraries* libraries;  // of the stream's device, never null: libraries.h
};
inline constexpr int64_t kScratchBytes = int64_t{32} << 20;

// `stream`, or what it looks on (Stream::underlying), must be of the CUDA
// device.
const StreamInfo& InfoOf(Stream& stream);

}  // namespace cuda
}  // namespace delink
