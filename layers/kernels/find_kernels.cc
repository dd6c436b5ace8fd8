#include "layers/kernels/find_kernels.h"

#include "layers/kernels/cpu/cpu.h"
#include "layers/kernels/meta/meta.h"
#include "layers/kernels/ref/ref.h"

namespace delink {

const Kernels* FindKernels(DeviceKind device, DType dtype) {
  const bool f32 = dtype == DType::kF32;
  if (!f32 && dtype != DType::kF64) return nullptr;
  switch (device) {
    case DeviceKind::kCpu:
      return f32 ? &cpu::Table() : &ref::Table<double>();
    case DeviceKind::kMeta: {
      static const Kernels kF32 = meta::Table(cpu::Table());
      static const Kernels kF64 = meta::Table(ref::Table<double>());
      return f32 ? &kF32 : &kF64;
    }
    case DeviceKind::kCuda:
      return nullptr;
  }
  return nullptr;
}

const Kernels& ReferenceKernelsF32() { return ref::Table<float>(); }

}  // namespace delink
