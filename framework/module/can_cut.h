// Whether parameters can be cut over ranks of the tensor axis as a layout cuts
// them (layout.h): between heads. Each rank must have the same number of heads
// or, for Split::kOut only, each head the same number of ranks.
#pragma once

#include <cstdint>

#include "framework/module/scope.h"

namespace delink {

// The first parameter that cannot be cut over `ranks` ranks, or null.
const ParamDecl* CannotBeCut(const ParamRegistry& registry, int64_t ranks);

}  // namespace delink
