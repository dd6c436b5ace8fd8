#include "layers/kernels/find_kernels.h"

#include <string>

#include "absl/status/status.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/cpu.h"
#include "layers/kernels/cpu/matmul.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/meta/meta.h"
#include "layers/kernels/ref/ref.h"
#include "layers/kernels/timed/timed.h"

namespace delink {
namespace {

const Kernels* OnCpu(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return &cpu::Table<float>();
    case DType::kBF16:
      return &cpu::Table<BFloat16>();
    case DType::kF64:
      return &ref::Table<double>();
    default:
      return nullptr;
  }
}

const Kernels* OnMeta(DType dtype) {
  static const Kernels kF32 = meta::Table(cpu::Table<float>(), DType::kF32);
  static const Kernels kBF16 =
      meta::Table(cpu::Table<BFloat16>(), DType::kBF16);
  static const Kernels kF64 = meta::Table(ref::Table<double>(), DType::kF64);
  switch (dtype) {
    case DType::kF32:
      return &kF32;
    case DType::kBF16:
      return &kBF16;
    case DType::kF64:
      return &kF64;
    default:
      return nullptr;
  }
}

// In every build, since plans for CUDA can be made on any machine.
template <typename T>
const Kernels* InPlaceOfCuda(DType dtype) {
#define DELINK_SCRATCH(entry, Function) .entry = cuda::Function##Scratch<T>,
  static const Kernels kTable =
      meta::Table({DELINK_SCRATCH_BYTES(DELINK_SCRATCH)}, dtype);
#undef DELINK_SCRATCH
  return &kTable;
}

const Kernels* OnMetaCuda(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return InPlaceOfCuda<float>(dtype);
    case DType::kBF16:
      return InPlaceOfCuda<BFloat16>(dtype);
    default:
      return nullptr;
  }
}

const Kernels* OnCuda(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return cuda::Table<float>();
    case DType::kBF16:
      return cuda::Table<BFloat16>();
    default:
      return nullptr;
  }
}

}  // namespace

const Kernels* FindKernels(DeviceKind device, DType dtype) {
  switch (device) {
    case DeviceKind::kCpu:
      return OnCpu(dtype);
    case DeviceKind::kMeta:
      return OnMeta(dtype);
    case DeviceKind::kMetaCuda:
      return OnMetaCuda(dtype);
    case DeviceKind::kTimedCpu:
    case DeviceKind::kTimedCuda:
      return timed::Table(device, dtype);
    case DeviceKind::kCuda:
      return OnCuda(dtype);
  }
  return nullptr;
}

absl::Status CheckKernels(DeviceKind device) {
  if (!IsCuda(device) || IsMeta(device)) return absl::OkStatus();
  const std::string missing = cuda::MissingLibrary();
  return missing.empty() ? absl::OkStatus()
                         : absl::FailedPreconditionError(missing);
}

std::string PrepareKernels(Device& device, DType dtype) {
  const bool cuda = IsCuda(device.kind()) && !IsMeta(device.kind());
  if (!cuda || dtype != DType::kBF16) return "";
  const std::string missing = cuda::OpenAttention(*device.NewStream());
  if (missing.empty()) return "";
  return "attention in bf16 uses our own kernels instead of cuDNN; they are "
         "several times slower: " +
         missing;
}

bool FastBf16() { return cpu::MultipliesBf16(); }

MatmulKernel LibraryMatmul(DType dtype) {
  return dtype == DType::kF32    ? cpu::LibraryMatmul<float>()
         : dtype == DType::kBF16 ? cpu::LibraryMatmul<BFloat16>()
                                 : nullptr;
}

const Kernels& ReferenceKernelsF32() { return ref::Table<float>(); }
const Kernels& ReferenceKernelsBf16() { return ref::Table<BFloat16>(); }

}  // namespace delink
