// Which slot and which gradient boundary each visit uses: part of
// AnalyzeProgram.
#pragma once

#include "framework/step/dependencies.h"
#include "framework/step/instruction.h"

namespace delink {

// Sets slot_of, slots, boundary_of and boundaries by a linear scan over the
// program, which must be one that the validator passes. Whatever is taken gets
// the lowest free number of its pool, so that there are as many as are ever
// taken at once.
void ScanSlots(const Program& program, Analysis* analysis);

}  // namespace delink
