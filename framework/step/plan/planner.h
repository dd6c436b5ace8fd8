// Who writes the programs of a stage.
#pragma once

#include <functional>

#include "framework/step/instruction.h"

namespace delink {

// A pure function: equal shapes give equal programs, on every rank.
using Planner = std::function<Program(PassKind, const ProgramShape&)>;

}  // namespace delink
