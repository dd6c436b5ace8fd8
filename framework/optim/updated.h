// Common arguments of optimizers' kernels. Private to framework/optim.
#pragma once

#include <vector>

#include "framework/optim/kernels.h"
#include "framework/optim/param_rules.h"

namespace delink {

// The table of kernels for the store's device, or for the device that updates
// `slab`.
const OptimKernels& KernelsFor(const ParamStore& store);
const OptimKernels& KernelsFor(const ParamStore& store, int slab);

const ParamDecl& DeclOf(const ParamStore& store, const SlabParam& param);

// Whether a slab's gradients are bf16 (`bf16_g`).
bool HasBf16Gradients(const ParamStore& store, int slab);

// The form of the parameters that an update of the slab writes.
MasterForm FormOf(const ParamStore& store, int slab);

// A run's parameters for one call, from element `begin` of the slab on; if they
// are of one parameter alone, its index in the slab, else -1.
struct UpdatedPart {
  UpdatedParams params;
  int64_t begin = 0;
  int param = -1;
};
// The random numbers of an update that rounds stochastically.
struct Rounding {
  RngKey key;
  int64_t update = 1;
};
// Splits a run into calls. One call updates neighbours with the same
// hyper-parameters; the padding between them is zero and stays zero. But if
// rounding depends on name and position, because there is no master or because
// `rounds_state`, each parameter has calls of its own: one for each
// rectangle, so that the numbers are those of the whole parameter; or one in
// all, if it is updated `together`, has 8-bit blocks, which cross the ends of
// rows, or is cut between values of one draw.
std::vector<UpdatedPart> PartsOf(const ParamStore& store, int slab,
                                 const UpdateRun& run,
                                 const UpdateControl* control,
                                 const Rounding& rounding,
                                 bool rounds_state = false,
                                 bool together = false);
// The only part of a run in one parameter that is updated together.
UpdatedParams ParamsOf(const ParamStore& store, int slab, const UpdateRun& run,
                       const UpdateControl* control, const Rounding& rounding);

// AdamW's arguments for these parameters, without moments and hyper-parameters
// of its own.
AdamWArgs AdamWArgsOf(const UpdatedParams& params);

}  // namespace delink
