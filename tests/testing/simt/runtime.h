// What the emulated runtime's functions share. They are declared by the real
// cuda_runtime_api.h; those that nothing of Delink calls are not defined, and
// calling one does not link.
#pragma once

#include <driver_types.h>

namespace delink::simt {

// cudaSuccess, or why there is no device (Options).
cudaError_t Ready();
// Remembers the error for cudaGetLastError, and is it.
cudaError_t Fail(cudaError_t error);

}  // namespace delink::simt
