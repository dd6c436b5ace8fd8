// The validator: proves before the first step that the programs of all ranks
// are right, and names the first thing that is wrong.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "framework/step/instruction.h"

namespace delink {

// For one rank's program, over two consecutive steps:
//   - every visit happens once, in an order that the model allows: forward
//     after the layer before it, backward after the loss or the layer behind
//     it, whole or in two halves, micro-batches ascending in backward, or in
//     its second halves, for each layer; recompute flags of forward and
//     backward agree;
//   - what another stage needs is sent once, when it is made, and nothing is
//     used before it has come;
//   - every use finds its weights whole (kGather after an update that gathers,
//     before the next use, once) and its slot filled;
//   - what has copies is there when the device works on it: fetched, or, of a
//     gradient to which nothing was added yet, taken; a copy is free then; what
//     was written in it is evicted before it is fetched again, before it is
//     released while somebody needs it, and before whatever works at home; the
//     host updates slabs that have no copy; at the end of the step none is
//     left;
//   - a slot is stored once at the most, between its forward and its backward,
//     and loaded before that;
//   - every gradient is complete before its one kReduce, its one kSquares comes
//     after that, kNorm once and after all of them, every slab is updated once
//     and after kNorm (kGradients: none is);
//   - the kSaves of a step all come before or all after their slabs' updates.
// Evaluations and diagnoses consist of forwards and losses, all kForwardOnly,
// of fetches and releases of weights, and of one kSum, which comes after all
// that it is of; in a diagnosis each forward is followed by its kInspect, while
// what it gave is there. In a probe a backward of a layer that shares slabs
// with other blocks keeps their gradients apart (kApart), a kProbe takes each
// of them before the next such backward, what blocks of several stages share is
// reduced when all of it is taken, nothing else is, and one kSum comes at the
// end.
//
// Returns InvalidArgument naming the first instruction that is wrong (its index
// and text) and the rule, or the instruction that is missing.
absl::Status ValidateProgram(const Program& program);

// All ranks' programs, by rank, which is the place in its stage
// (ProgramShape::tensor) + ranks of a stage x stage: of one kind, each
// validated and of its stage; what they do together (joint_execution.h) meets
// in one order, lane by lane, also in the middle of visits, and all of them
// end: no deadlock by order. Errors name the rank as well. Ranks whose programs
// are equal cost a comparison each.
absl::Status ValidatePrograms(const std::vector<Program>& programs);

// The same where all ranks of a stage have one program: by stage.
absl::Status ValidateStages(const std::vector<Program>& stages);

}  // namespace delink
