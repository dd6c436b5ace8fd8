// An independent judge of AnalyzeProgram: executes the programs of all stages
// for several steps in a random order that their lanes and dependencies allow,
// instructions of different lanes and ranks overlapping, and watches what every
// piece of memory holds, also what travels. It shares no table with
// framework/step.
#pragma once

#include <string>
#include <vector>

#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"
#include "tests/framework/step/programs.h"

namespace delink::step_test {

// Three steps in a random order. Returns what went wrong first, or nothing:
// two instructions that touch a cell at the same time, a slot or boundary that
// does not hold what its visit needs or is overwritten while it is needed,
// weights of another step, a gradient that is not the set of the step's
// contributions, each once.
std::string Simulate(const Program& program, const Analysis& analysis,
                     Dice& dice);

// The same of one rank of each stage, by stage; if weights are sharded, of two
// ranks of each stage. What they do together they do at one time: collectives
// of slabs that several have, kNorm, kSum, a kSend and its kRecv. Nothing else
// keeps them apart, so that two that wait for each other are found. Shards that
// are gathered must be of one step.
std::string Simulate(const std::vector<Program>& stages,
                     const std::vector<Analysis>& analyses, Dice& dice);

}  // namespace delink::step_test
