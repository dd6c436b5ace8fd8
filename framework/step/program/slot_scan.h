// Which slot and which gradient boundary each visit uses, and where it holds
// tensors between the halves of its backward. Part of AnalyzeProgram.
#pragma once

#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"

namespace delink {

// Sets copies_of, whole_of, wholes, slot_of, pool_of, slots, stored_of, stored,
// held_of, held, boundary_of and boundaries by a linear scan over the program,
// which must be one that the validator passes. Except for copies, each gets the
// lowest free number of its pool, so a pool has as many as are ever taken at
// once.
//
// A stored slot is loaded to the same memory, because a visit has recorded
// addresses. So it gets the lowest number that is free both times, and a pool
// may have a few more slots than are ever taken at once.
//
// The memory of a whole gradient that is reduced is freed when the first visit
// begins that adds to gradients after the next reduction. If its own kReduce
// freed it, the next layer's backward would get it, and would wait for the
// network.
//
// The slot or boundary of a kSend is freed by the next kSend of its lane, or at
// the end. If its own kSend freed it, the next user would get it, and would
// wait for the neighbour to receive. If that user is a kRecv, and the neighbour
// has one like it, both would wait for ever.
void ScanSlots(const Program& program, Analysis* analysis);

}  // namespace delink
