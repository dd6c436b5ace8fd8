// The functions that write the programs of a stage.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/step/program/instruction.h"

namespace delink {

// The program of a stage of the pipeline: a pure function, so that every rank
// can write all of them.
using Planner =
    std::function<Program(PassKind, const ProgramShape&, int32_t stage)>;

}  // namespace delink
