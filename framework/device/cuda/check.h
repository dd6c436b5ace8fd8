// Errors of the CUDA runtime. Anything but running out of memory is fatal: the
// message names file, line, rank, the call and the runtime's error.
//
//   DELINK_CUDA_CHECK(cudaEventRecord(event, stream));
#pragma once

#include <cuda_runtime_api.h>

namespace delink::cuda {

// Prints and aborts, as DELINK_CHECK does.
[[noreturn]] void Fail(const char* file, int line, const char* call,
                       cudaError_t error);

}  // namespace delink::cuda

#define DELINK_CUDA_CHECK(call)                                       \
  do {                                                                \
    const cudaError_t delink_error_ = (call);                         \
    if (delink_error_ != cudaSuccess) {                               \
      ::delink::cuda::Fail(__FILE__, __LINE__, #call, delink_error_); \
    }                                                                 \
  } while (false)
