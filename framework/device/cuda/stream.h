// A stream of the CUDA device, as code that launches kernels sees it.
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
  // workspace. Work of a stream is in order, so the next call may use it again.
  // Address and size are multiples of 256 bytes, and the size is at least
  // kScratchBytes.
  void* scratch;
  int64_t scratch_bytes;
  int multiprocessors;
};

// `stream`, or the stream that it wraps, must be of the CUDA device. Makes this
// device the calling thread's current one.
const StreamInfo& InfoOf(Stream& stream);

// State that kernels keep per device from call to call: a library's handle,
// plans by shape. It is destroyed with the device, once all streams are done.
class Resident {
 public:
  virtual ~Resident() = default;
};

// The state of the stream's device, made at the first call with this `make`.
// Several threads may call this and use the state at the same time.
Resident& Kept(Stream& stream, std::unique_ptr<Resident> (*make)());

}  // namespace cuda
}  // namespace delink
