// When moving weights, gradients and optimizer state hides under a step's
// arithmetic, and what of a slab it takes: formulas, of measured rates alone.
//
// A dense parameter takes 2 FLOPs a token forward and 4 backward, so T tokens
// hide what of a parameter takes up to 2 T / F or 4 T / F seconds. T is what
// one pass over the weights computes: the tokens of a micro-batch where each
// fetches them anew (micro-batch-major), of the whole step on this device
// where all micro-batches pass a layer before the next is fetched
// (layer-major). In mixtures of experts a parameter sees fewer tokens.
//
// Bytes over the bus hide only where both directions run at once, so rates are
// those of both together.
#pragma once

#include <cstdint>

#include "framework/tensor/dtype.h"
#include "offload/rates/machine_rates.h"
#include "offload/rates/param_forms.h"

namespace delink::offload {

// A second.
struct StepRates {
  double flops = 0;      // that products reach
  double to_device = 0;  // bytes, while to_host is in use too
  double to_host = 0;
  double host_memory = 0;    // bytes that the host reads and writes in updates
  double device_memory = 0;  // the same of the device; 0: not known
};
// With products in `compute`, whose rate must be there; pinned copies, and the
// host's memory as it is rewritten.
StepRates RatesOf(const MachineRates& rates, DType compute);
// The same for AdamW in these forms, whose updates take what was measured of
// them, where it was, or of them with other gradients: arithmetic may be more
// than memory.
StepRates RatesOf(const MachineRates& rates, const ParamForms& forms);

// FLOPs of a parameter and token.
struct TokenWork {
  double forward = 2;
  double backward = 4;  // 6 where the forward pass is computed again
  // Parameters of what is offloaded over those that a token passes through.
  double total_over_active = 1;
};

// What of a slab is in host memory between its uses.
struct HostHomes {
  bool weights = true;
  bool gradients = true;
  bool state = true;
};

// Bytes of a parameter that an update on the device brings and takes back.
struct StreamedBytes {
  double in = 0, out = 0;
};
StreamedBytes StreamedBy(const ParamBytes& bytes, const HostHomes& homes);

// Bytes of a parameter that an update reads and writes: the gradient is read,
// state is read and written, the weight is written.
double UpdateTraffic(const ParamBytes& bytes);
// That host memory moves for an update there: besides, the gradient arrives and
// the weight leaves for the device.
double HostTraffic(const ParamBytes& bytes);

// Bytes of a parameter that host memory holds.
double HostBytes(const ParamBytes& bytes, const HostHomes& homes);

// The tokens from which on each is free.
struct FreeFrom {
  double weights_in_forward = 0;
  double weights_in_backward = 0;
  double gradients_out = 0;  // under backward
  // Each slab as soon as its gradient is there: without clipping by the norm
  // of all.
  double host_update_in_backward = 0;
  // Under the next forward pass, when the norm of all gradients is known.
  double host_update_in_forward = 0;
  // Likewise, with what is streamed for it beside the forward pass's weights.
  double device_update_in_forward = 0;
};
FreeFrom TokensFrom(const ParamBytes& bytes, const HostHomes& homes,
                    const StepRates& rates, const TokenWork& work = {});

// The model's width from which on a layer's input (bf16) leaves under the
// layer's own forward pass, of 12 width^2 parameters.
double WidthToHideBoundaries(const StepRates& rates);

}  // namespace delink::offload
