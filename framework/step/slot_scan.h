// Which slot and which gradient boundary each visit uses, and where it keeps
// what is held between the halves of its backward: part of AnalyzeProgram.
#pragma once

#include "framework/step/dependencies.h"
#include "framework/step/instruction.h"

namespace delink {

// Sets copies_of, slot_of, pool_of, slots, stored_of, stored, held_of, held,
// boundary_of and boundaries by a linear scan over the program, which must be
// one that the validator passes. Whatever is taken gets the lowest free number
// of its pool, so that there are as many as are ever taken at once.
//
// A slot that is stored comes back to where it was, because what a visit has
// recorded is addresses. So it gets the lowest number that is free both times,
// and there may be a few more than are ever taken at once.
//
// What is sent is given back by the next kSend of its lane, or at the end: if
// its own did, whoever comes next would get it, and wait for the neighbour to
// receive. Where that is a kRecv, of which the neighbour has the like, both
// wait for ever.
void ScanSlots(const Program& program, Analysis* analysis);

}  // namespace delink
