// What programs need to know of a layout.
#pragma once

#include <cstdint>

#include "framework/module/layout.h"
#include "framework/step/instruction.h"

namespace delink {

// The same on every rank. No axis but data and pipeline yet.
ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches);

}  // namespace delink
