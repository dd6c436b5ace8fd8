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
// 1 AVX2, 2 AVX-512. traffic: 0 as for small ranges; 1 with prefetches and 2
// with prefetches and non-temporal stores, as for large ones. False if this
// machine does not have the instruction set.
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
