// Executes the programs of all ranks in a random order, as communicators see
// them: each rank posts in each of them one thing after the other, and a rank
// waits in a lane until all members have posted as many. An independent judge
// of what CheckVisitMeetings and the joint execution let pass; it shares no
// table with them.
#pragma once

#include <string>
#include <vector>

#include "framework/step/program/instruction.h"
#include "tests/framework/step/programs.h"

namespace delink::step_test {

// Two steps. What went wrong first, or nothing: two ranks that post unlike
// things in one communicator, or lanes that wait for each other.
std::string SimulateRanks(const std::vector<Program>& ranks, Dice& dice);

}  // namespace delink::step_test
