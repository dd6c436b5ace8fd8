// Gated linear unit with SiLU (Shazeer, "GLU Variants Improve Transformer",
// 2020), without its projections.
#pragma once

#include "framework/autograd/tape.h"

namespace delink::ops {

// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)). x [..., 2 F]: each row is
// the gate, then up. y [..., F].
Var SwiGlu(Var x);

}  // namespace delink::ops
