// The kernels of the CUDA device. Device code is in NAME.cuh, and NAME.cu
// chooses the shapes of the launches. Matrix products are cuBLASLt's and
// attention is cuDNN's where there is one; both are behind the functions
// declared here.
#pragma once

#include <string>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/backend.h"

namespace delink::cuda {

// T is float or BFloat16. Statistics and gradients of parameters are f32. Null
// in a build without CUDA (no_cuda/table.cc).
template <typename T>
const Kernels* Table();

// What matrix products lack on this machine, where it was looked for and how to
// mend that; empty when nothing is. To be asked before anything is computed,
// which ends the process where it is not there.
std::string MissingLibrary();
// Opens what attention in bf16 calls, which else its first call does. Empty, or
// why there is none and our own kernels, which are slower, do it.
std::string OpenAttention(Stream&);

DELINK_KERNELS(DELINK_DECLARE_KERNEL)
DELINK_SCRATCH_BYTES(DELINK_DECLARE_SCRATCH)

// Our own, for what cuBLASLt does not take.
template <typename T>
void TiledMatmul(Stream&, const MatmulArgs&);

}  // namespace delink::cuda
