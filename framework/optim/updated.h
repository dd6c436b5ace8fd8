// Common arguments of optimizers' kernels. Private to framework/optim.
#pragma once

#include "framework/optim/kernels.h"
#include "framework/optim/param_rules.h"

namespace delink {

// The table of kernels for the store's device, or for the device that updates
// `slab`.
const OptimKernels& KernelsFor(const ParamStore& store);
const OptimKernels& KernelsFor(const ParamStore& store, int slab);

const ParamDecl& DeclOf(const ParamStore& store, const SlabParam& param);

// Whether gradients are bf16 (`bf16_g`).
bool HasBf16Gradients(const ParamStore& store);

// A run's parameters, rounded weights and gradient.
UpdatedParams ParamsOf(const ParamStore& store, int slab, const UpdateRun& run,
                       const UpdateControl* control);

}  // namespace delink
