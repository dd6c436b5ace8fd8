// Whether parameters can be cut over ranks of the tensor axis as a layout cuts
// them (layout.h): between heads, with as many heads on each rank, or with each
// head on as many ranks (Split::kOut).
#pragma once

#include <cstdint>

#include "framework/module/scope.h"

namespace delink {

// The first parameter that cannot be cut over so many ranks, or null.
const ParamDecl* CannotBeCut(const ParamRegistry& registry, int64_t ranks);

}  // namespace delink
