// The kernels of the CUDA device. Device code is in NAME.cuh, and NAME.cu
// chooses the shapes of the launches. Matrix products use cuBLASLt, and
// attention uses cuDNN if there is one, through the functions declared here.
#pragma once

#include <string>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/backend.h"

namespace delink::cuda {

// T is float or BFloat16. Statistics and gradients of parameters are f32. Null
// in a build without CUDA (no_cuda/table.cc).
template <typename T>
const Kernels* Table();

// If a library for matrix products is missing: its name, where it was looked
// for and how to fix that; else empty. Call it before any computation, which
// ends the process if the library is missing.
std::string MissingLibrary();
// Opens the library for attention in bf16, which its first call would do
// otherwise. Returns an empty string, or why there is none; our own kernels,
// which are slower, then do the work.
std::string OpenAttention(Stream&);

DELINK_KERNELS(DELINK_DECLARE_KERNEL)
DELINK_SCRATCH_BYTES(DELINK_DECLARE_SCRATCH)

// Our own product, for calls that cuBLASLt does not take.
template <typename T>
void TiledMatmul(Stream&, const MatmulArgs&);

}  // namespace delink::cuda
