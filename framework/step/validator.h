// The validator: proves before the first step that the programs of all ranks
// are right, and names the first thing that is wrong.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "framework/step/instruction.h"

namespace delink {

// For one rank's program, over two consecutive steps: every visit happens once
// and in an order that the model allows (forward after the layer before it,
// backward after loss and after the layer behind it, micro-batches ascending in
// backward for each layer), every use finds its weights fetched (kFetch after a
// sharded kUpdate, before the next use) and its slot filled, every slab's
// gradient is complete before its one kReduce, every slab is updated once,
// after kNorm, and kNorm comes after all reductions; recompute flags of forward
// and backward agree. InvalidArgument naming the instruction (its index and
// text) and the rule otherwise.
absl::Status ValidateProgram(const Program& program);

// All ranks' programs, jointly: what is collective (kReduce, kNorm, kFetch that
// gathers, kSend with its kRecv) meets in the same order on every rank, lane by
// lane, under rendezvous semantics: no deadlock by order. Validates each
// program as well; errors name the rank.
absl::Status ValidatePrograms(const std::vector<Program>& programs);

}  // namespace delink
