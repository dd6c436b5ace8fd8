// What those who launch kernels see of a stream of the CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "framework/device/cuda/scratch.h"

namespace delink {

class Stream;

namespace cuda {

struct StreamInfo {
  cudaStream_t handle;
  // Memory for what a kernel needs inside one call: partial sums, cuBLASLt's
  // workspace. In the stream's order, so the next call may use it again. A
  // multiple of 256 bytes, at least kScratchBytes, at an address that is one.
  void* scratch;
  int64_t scratch_bytes;
  int multiprocessors;
};

// `stream`, or what it looks on, must be of the CUDA device, which this makes
// the calling thread's current one.
const StreamInfo& InfoOf(Stream& stream);

// What kernels keep with a device from call to call: a library's handle, plans
// by shape. It goes with the device, once all streams are done.
class Resident {
 public:
  virtual ~Resident() = default;
};

// The stream's device's own, made at the first call with this `make`. Any
// thread may call, and have it at the same time as others.
Resident& Kept(Stream& stream, std::unique_ptr<Resident> (*make)());

}  // namespace cuda
}  // namespace delink
