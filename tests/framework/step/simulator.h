// An independent judge of AnalyzeProgram: executes a program for several steps
// in a random order that its lanes and dependencies allow, instructions of
// different lanes overlapping, and watches what every piece of memory holds. It
// shares no table with framework/step.
#pragma once

#include <string>

#include "framework/step/dependencies.h"
#include "framework/step/instruction.h"
#include "tests/framework/step/programs.h"

namespace delink::step_test {

// Three steps in a random order. Returns what went wrong first, or nothing:
// two instructions that touch a cell at the same time, a slot or boundary that
// does not hold what its visit needs or is overwritten while it is needed,
// weights of another step, a gradient that is not the set of the step's
// contributions, each once.
std::string Simulate(const Program& program, const Analysis& analysis,
                     Dice& dice);

}  // namespace delink::step_test
