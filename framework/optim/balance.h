// The biases of routers that balance experts without an auxiliary loss (Wang et
// al., "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts",
// 2024), and the loads that an auxiliary loss over batches needs:
// ParamSpec::balance_rate and router_loads.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "framework/optim/arguments.h"

namespace delink {

// Whether the slab has such a bias, or loads.
bool HasBias(const ParamStore& store, int slab);

// Moves the slab's biases and sets its loads, as far as this rank updates them,
// after the optimizer's update, which does not change them. `layers`
// [Slab::layers] says where in `sums` those of each layer of the slab begin.
// Memory is that of the device that updates the slab.
void MoveBiases(Stream& stream, ParamStore& store, int slab,
                const UpdateControl* control, const double* sums,
                const int64_t* layers);

}  // namespace delink
