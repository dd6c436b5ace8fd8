// The mathematics of DynamicTanh, as plain functions on memory.
#pragma once

#include <cstdint>

#include "layers/kernels/kernel_list.h"

namespace dyt {

// docs: arguments
// y = scale * t, t = tanh(slope * x).
struct ForwardArgs {
  int64_t N, D;
  const void* x;      // [N, D]
  const void* slope;  // [D]
  const void* scale;  // [D]
  void* y;            // [N, D]
};

// dx = dy * scale * slope * (1 - t^2).
struct BackwardInputArgs {
  int64_t N, D;
  const void* dy;     // [N, D]
  const void* x;      // [N, D]
  const void* slope;  // [D]
  const void* scale;  // [D]
  void* dx;           // [N, D]
};

// dslope = sum of dy * scale * x * (1 - t^2) and dscale = sum of dy * t, over
// all rows; each is added to where its `accumulate` says so. They are f32 where
// all else is bf16.
struct BackwardWeightArgs {
  int64_t N, D;
  const void* dy;     // [N, D]
  const void* x;      // [N, D]
  const void* slope;  // [D]
  const void* scale;  // [D]
  void* dslope;       // [D]
  void* dscale;       // [D]
  bool accumulate_slope, accumulate_scale;
};

struct Kernels {
  void (*forward)(delink::Stream&, const ForwardArgs&);
  void (*backward_input)(delink::Stream&, const BackwardInputArgs&);
  void (*backward_weight)(delink::Stream&, const BackwardWeightArgs&);
};

// One table for each device and element type that the op runs on.
const delink::KernelList<Kernels>& ListOfKernels();
// docs: end

}  // namespace dyt
