// Which table of kernels serves a device and dtype.
#pragma once

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"

namespace delink {

// (cpu, f32): fast. (cpu, f64): the reference in double. (meta, either): does
// nothing, but answers scratch queries as the CPU does, so that a plan made on
// meta fits. Null when this build has no kernels for the pair.
const Kernels* FindKernels(DeviceKind device, DType dtype);

// Plain loops on f32 storage with arithmetic in double, for tests.
const Kernels& ReferenceKernelsF32();

}  // namespace delink
