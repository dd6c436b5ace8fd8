// What programs need to know of a layout.
#pragma once

#include <cstdint>

#include "framework/module/layout.h"
#include "framework/step/instruction.h"

namespace delink {

// The same on every rank, but for slot classes and exchanges, which come with
// measured layers (measure.h).
ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches);

}  // namespace delink
