// Which planes of slabs are on the device when, where they are at home
// elsewhere: the instructions that bring them there and back, put into a
// program that was planned as if all were there.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/step/instruction.h"
#include "framework/step/plan/planner.h"

namespace delink {

// Of the copies of a class that may go, given by how many instructions of the
// program it is until each is worked on again (the most: never), which goes.
using ChooseCopy = std::function<size_t(const std::vector<int32_t>& uses)>;

// The one that is wanted last, which is the best there is where all are as
// large (Belady, 1966).
size_t WantedLast(const std::vector<int32_t>& uses);

// A kFetch, or of a gradient that nothing was added to yet a kTake, before the
// first instruction that works on the planes and whenever they had to make
// room; a kEvict of what was written, and a kRelease, as soon as the device has
// no more to do with them before somebody wants them at home, or the end. As
// lanes run ahead as far as copies are free, fetches come early by themselves,
// and evictions go while others are at work.
//
// A pure function; of a program whose shape has no copies it is that program.
// Each class has as many copies as one instruction works on.
Program AddResidency(const Program& bare,
                     const ChooseCopy& choose = WantedLast);

// The planner's programs, with that.
Planner WithResidency(Planner planner);

}  // namespace delink
