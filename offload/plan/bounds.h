// When copies of weights, gradients and optimizer state overlap a step's
// computation completely, and what they cost per parameter: formulas of
// measured rates alone.
//
// A dense parameter takes 2 FLOPs a token forward and 4 backward. So at F FLOPs
// a second, T tokens hide up to 2 T / F or 4 T / F seconds of work on a
// parameter. T is the number of tokens of one pass over the weights: a
// micro-batch's if each micro-batch fetches the weights anew (run.order =
// "micro_batch"); the whole step's on this device if all micro-batches pass a
// layer before the next is fetched ("layer"). In mixtures of experts a
// parameter sees fewer tokens.
//
// Copies can be hidden only if both directions of the bus run at once, so rates
// are measured with both busy.
#pragma once

#include <cstdint>

#include "framework/tensor/dtype.h"
#include "offload/rates/machine_rates.h"
#include "offload/rates/param_forms.h"

namespace delink::offload {

// A second.
struct StepRates {
  double flops = 0;      // of matrix products
  double to_device = 0;  // bytes, while to_host is in use too
  double to_host = 0;
  double host_memory = 0;    // bytes that the host reads and writes in updates
  double device_memory = 0;  // the same of the device; 0: not known
  bool adamw = false;        // whether updates are AdamW's, in the default form
};
// With matrix products in `compute`, whose rate must be known (a check), pinned
// copies, and host memory that is rewritten in place.
StepRates RatesOf(const MachineRates& rates, DType compute);
// The same for AdamW in these forms. If updates were measured in them, or in
// them with another gradient dtype, the memory rates are those of updates,
// because arithmetic may take longer than memory.
StepRates RatesOf(const MachineRates& rates, const ParamForms& forms);

// FLOPs per parameter and token.
struct TokenWork {
  double forward = 2;
  double backward = 4;  // 6 with recompute
  // Offloaded parameters over those that a token passes through.
  double total_over_active = 1;
};

// Which planes of a slab are host-resident.
struct HostHomes {
  bool weights = true;
  bool gradients = true;
  bool state = true;
};

// Bytes per parameter that an update on the device copies in and out.
struct StreamedBytes {
  double in = 0, out = 0;
};
StreamedBytes StreamedBy(const ParamBytes& bytes, const HostHomes& homes);

// Bytes per parameter that an update reads and writes: the gradient is read,
// state is read and written, the weight is written, and also read unless a
// whole master is beside it.
double UpdateTraffic(const ParamBytes& bytes);
// Bytes per parameter that host memory moves for an update on the host: also
// the gradient that arrives and the weight that leaves for the device.
double HostTraffic(const ParamBytes& bytes);

// Bytes per parameter that host memory holds.
double HostBytes(const ParamBytes& bytes, const HostHomes& homes);

// The number of tokens from which on each is completely hidden.
struct FreeFrom {
  double weights_in_forward = 0;
  double weights_in_backward = 0;
  double gradients_out = 0;  // under backward
  // Each slab is updated as soon as its gradient is complete, which excludes
  // clipping by the norm of all gradients.
  double host_update_in_backward = 0;
  // Updates overlap the next forward, when the norm of all gradients is known.
  double host_update_in_forward = 0;
  // Likewise, with the update's copies beside those of the forward's weights.
  double device_update_in_forward = 0;
};
FreeFrom TokensFrom(const ParamBytes& bytes, const HostHomes& homes,
                    const StepRates& rates, const TokenWork& work = {});

// The model width from which on the copy of a layer's input (bf16) to the host
// is hidden under the layer's own forward, with 12 width^2 parameters.
double WidthToHideBoundaries(const StepRates& rates);

}  // namespace delink::offload
