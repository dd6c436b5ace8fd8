// Which table of kernels serves a device and dtype.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"

namespace delink {

// (cpu, f32) and (cpu, bf16): fast. (cpu, f64): the reference in double. (meta,
// any of them): does nothing, but answers scratch queries as the CPU does, so
// that a plan made on meta fits. (meta cuda, f32) and (meta cuda, bf16): as
// CUDA's kernels do, in every build. (timed cpu, any of them): the CPU's, whose
// calls are noted (timed/timed.h). (cuda, f32) and (cuda, bf16): in a build
// with CUDA. Null when this build has no kernels for the pair.
const Kernels* FindKernels(DeviceKind device, DType dtype);

// Whether the libraries that the device's kernels call are on this machine,
// which ends the process when they are called and are not: FailedPrecondition
// says where they were looked for and how to mend it.
absl::Status CheckKernels(DeviceKind device);

// Opens the libraries that else the first step would open: what they take is
// then part of the device's overhead. Empty, or which kernels are slow for want
// of one, and how to mend it.
std::string PrepareKernels(Device& device, DType dtype);

// Whether the CPU's bf16 table multiplies matrices by instructions for bf16.
// Otherwise it is right all the same, but no faster than f32, maybe slower.
bool FastBf16();

// The CPU library's matmul, partitioned as the library likes, where training
// uses Delink's own loops in its place: the number that these are held against.
// Null where training uses the library, or there is none for the type.
using MatmulKernel = void (*)(Stream&, const MatmulArgs&);
MatmulKernel LibraryMatmul(DType dtype);

// Plain loops on f32 or bf16 storage with arithmetic in double, for tests.
const Kernels& ReferenceKernelsF32();
const Kernels& ReferenceKernelsBf16();

}  // namespace delink
