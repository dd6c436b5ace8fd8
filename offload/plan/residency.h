// Prefetches and evicts host-resident planes: adds the instructions that copy
// them to the device and back to a program that was planned as if all planes
// were on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/step/plan/planner.h"
#include "framework/step/program/instruction.h"

namespace delink {

// Chooses which copy of a class to free. `uses` has, for each candidate, the
// index of the instruction that uses it next (the largest value: never).
using ChooseCopy = std::function<size_t(const std::vector<int32_t>& uses)>;

// The one whose next use is last, which is optimal for copies of equal size
// (Belady, 1966).
size_t WantedLast(const std::vector<int32_t>& uses);

// Adds a kFetch before the first instruction that uses the planes, and again
// after they were freed to make room; for a gradient without contributions yet,
// a kTake instead. Adds a kRelease, after a kEvict if the planes were written,
// as soon as the device does not use them again before the host needs them or
// the program ends. Lanes run ahead as far as copies are free, so prefetches
// are early and evictions overlap other work.
//
// A pure function. If the program's shape has no copies, returns the program
// unchanged. Each class must have at least as many copies as one instruction
// uses.
Program AddResidency(const Program& bare,
                     const ChooseCopy& choose = WantedLast);

// A planner that applies AddResidency to the programs of `planner`.
Planner WithResidency(Planner planner);

}  // namespace delink
