// The kernels of an op that is not part of Delink: its author's own table of
// functions for each device and element type, in an explicit list.
//
//   struct SwishKernels {
//     void (*forward)(Stream&, const SwishForwardArgs&);
//     void (*backward)(Stream&, const SwishBackwardArgs&);
//   };
//   const KernelList<SwishKernels> kList = {
//       {DeviceKind::kCpu, DType::kF32, {Forward<float>, Backward<float>}},
//       {DeviceKind::kCpu, DType::kF64, {Forward<double>, Backward<double>}},
//       {DeviceKind::kMeta, DType::kF32, {meta::Nothing, meta::Nothing}},
//   };
//
// For each type that a device has, the list needs an entry for meta too, since
// memory is planned there. f64 on the CPU is for gradient checks; kBF16 is for
// `run.precision = "bf16"`. The contract of arguments.h holds for these kernels
// as well: bf16 in and out, but f32 for gradients of parameters.
#pragma once

#include <string>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/meta/meta.h"

namespace delink {

template <typename Table>
struct KernelEntry {
  DeviceKind device;
  DType dtype;
  Table kernels;
};

template <typename Table>
using KernelList = std::vector<KernelEntry<Table>>;

// Null when the list has none for the pair.
template <typename Table>
const Table* FindIn(const KernelList<Table>& list, DeviceKind device,
                    DType dtype) {
  // The entry for meta also serves plans for CUDA.
  if (device == DeviceKind::kMetaCuda) device = DeviceKind::kMeta;
  for (const KernelEntry<Table>& entry : list) {
    if (entry.device == device && entry.dtype == dtype) return &entry.kernels;
  }
  return nullptr;
}

// "f32 on cpu, f64 on cpu": for messages.
template <typename Table>
std::string WhatIsIn(const KernelList<Table>& list) {
  std::string text;
  for (const KernelEntry<Table>& entry : list) {
    if (!text.empty()) text += ", ";
    text.append(ToString(entry.dtype)).append(" on ");
    text.append(ToString(entry.device));
  }
  return text.empty() ? "none" : text;
}

}  // namespace delink
