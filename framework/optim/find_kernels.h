// Which table of the optimizers' kernels serves a device and element type.
#pragma once

#include "framework/device/backend.h"
#include "framework/optim/kernels.h"
#include "framework/tensor/dtype.h"

namespace delink {

// Null when this build has no kernels for the pair (f32 and f64 on the CPU; on
// meta they do nothing).
const OptimKernels* FindOptimKernels(DeviceKind device, DType dtype);

namespace cpu {
const OptimKernels* OptimTable(DType dtype);

// The same f32 step limited to one instruction set, for tests: 0 the baseline,
// 1 AVX2, 2 AVX-512; and as small ranges come and go (0) or large ones do: 1
// asked for ahead, 2 stored past the caches as well. False when this machine
// does not have it.
bool AdamWF32With(int instructions, const AdamWArgs& args, int traffic = 0);
bool SumSquaresF32With(int instructions, const SumSquaresArgs& args);
}  // namespace cpu
namespace meta {
const OptimKernels* OptimTable(DType dtype);
}  // namespace meta
namespace cuda {
const OptimKernels* OptimTable(DType dtype);
}  // namespace cuda

}  // namespace delink
