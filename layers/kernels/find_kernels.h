// Which table of kernels serves a device and dtype.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/kernels.h"

namespace delink {

// (cpu, f32) and (cpu, bf16): fast. (cpu, f64): the reference in double.
// (meta, any of these): computes nothing, but returns the CPU's scratch sizes,
// so that a plan made on meta fits. (meta cuda, f32) and (meta cuda, bf16): the
// same with CUDA's scratch sizes, in every build. (timed cpu or timed cuda, any
// type): the device's kernels, with calls recorded (timed/timed.h). (cuda, f32)
// and (cuda, bf16): in a build with CUDA. Null if this build has none.
const Kernels* FindKernels(DeviceKind device, DType dtype);

// Checks that this machine has the libraries that the device's kernels call.
// If not, FailedPrecondition says where they were looked for and how to fix it.
// A kernel whose library is missing ends the process.
absl::Status CheckKernels(DeviceKind device);

// Opens the libraries that the first step would open otherwise, so that their
// memory counts as the device's overhead. If one is missing, returns which
// kernels are slow without it and how to fix that; else an empty string.
std::string PrepareKernels(Device& device, DType dtype);

// Whether the CPU's bf16 table multiplies matrices with bf16 instructions.
// Without them it is correct, but no faster than f32 and maybe slower.
bool FastBf16();

// The CPU library's matmul, partitioned by the library, as the baseline for
// Delink's own loops if training uses these instead. Null if training uses the
// library, or if the library has none for the type.
using MatmulKernel = void (*)(Stream&, const MatmulArgs&);
MatmulKernel LibraryMatmul(DType dtype);

// Plain loops on f32 or bf16 storage with arithmetic in double, for tests.
const Kernels& ReferenceKernelsF32();
const Kernels& ReferenceKernelsBf16();

}  // namespace delink
