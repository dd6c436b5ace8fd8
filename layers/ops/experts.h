// The experts of a mixture, behind its router (route.h, layers/modules/moe.h):
//
//   r = Route(RouterLogits(x, router), config, bias)
//   h = GroupedLinear(Dispatch(x, r), r, up)
//   y = Combine(GroupedLinear(ActivateExperts(h, r, form), r, down), r, shape)
//
// Each of N tokens chooses k of E experts. Each kept choice is a row of the
// arrays [cap, ...] between Dispatch and Combine (expert_arguments.h); how many
// rows there are is known on the device alone. Gates are applied inside the
// activation, so that nothing of k widths a token is kept outside the experts.
// If experts are cut over ranks, expert_exchange.h goes around all this.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/kernels/expert_arguments.h"
#include "layers/ops/route.h"

namespace delink::ops {

// The rows of x [..., D]: [cap, D].
Var Dispatch(Var x, const Routing& r);

// Of each row x w_e^T + b_e: [cap, in] to [cap, out]; w [E, out, in], b [E,
// out] or null. `gated`: the gate multiplies b, of an x that has it
// (ActivateExperts).
Var GroupedLinear(Var x, const Routing& r, Param& w, Param* b = nullptr,
                  bool gated = false);

// Of each row gate * act(h): [cap, 2 F] or [cap, F] to [cap, F].
Var ActivateExperts(Var h, const Routing& r, ExpertActivation activation);

// Of each token the sum of its rows, in the order of its choices: [cap, D] to
// `shape`, [..., D].
Var Combine(Var x, const Routing& r, const Shape& shape);

}  // namespace delink::ops
