// Dynamic tanh, after "Transformers without Normalization" (Zhu et al., 2025):
// an op of one's own, with two parameters.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace dyt {

// y = scale * tanh(slope * x), with a slope and a scale for each channel.
// x [..., D], slope [D], scale [D].
delink::Var DynamicTanh(delink::Var x, delink::Param& slope,
                        delink::Param& scale);

}  // namespace dyt
