// The validator: proves before the first step that the programs of all ranks
// are right, and names the first thing that is wrong.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "framework/step/program/instruction.h"

namespace delink {

// For one rank's program, over two consecutive steps:
//   - every visit happens once, in an order that the model allows: forward
//     after the layer before it, backward after the loss or the layer behind
//     it, whole or in two halves, micro-batches ascending in backward, or in
//     its second halves, for each layer; recompute flags of forward and
//     backward agree;
//   - a tensor that another stage needs is sent once, after it is made, and
//     used only after it is received;
//   - every use finds its weights whole (kGather after an update that gathers,
//     before the next use, once) and its slot filled;
//   - planes with copies are in one when the device works on them: fetched, or,
//     for a gradient to which nothing was added yet, taken, when a copy is
//     free; a copy that was written is evicted before its planes are fetched
//     again, before it is released while they are needed, and before anything
//     works on them at home; slabs that the host updates have no copy then; at
//     the end of the step no copy is left;
//   - a slot is stored at most once, between its forward and its backward, and
//     loaded before the backward;
//   - every gradient is complete before its one kReduce, its one kSquares
//     follows that, one kNorm follows all of them, and every slab is updated
//     once after kNorm (kGradients: none is);
//   - the kSaves of a step all stand before or all after their slabs' updates.
// Evaluations and diagnoses consist of forwards and losses, all kForwardOnly,
// fetches and releases of weights, and one kSum after everything that it
// combines. In a diagnosis a kInspect follows each forward while its output is
// there. In a probe a backward of a layer that shares slabs with other blocks
// keeps their gradients apart (kApart), and a kProbe takes each of them before
// the next such backward. Slabs that ShapeTable::IsReducedByProbe are reduced
// when all their gradients are taken; no others are. One kSum ends the probe.
//
// Returns InvalidArgument naming the first instruction that is wrong (its index
// and text) and the rule, or the instruction that is missing.
absl::Status ValidateProgram(const Program& program);

// For all ranks' programs, by rank: the place in its stage
// (ProgramShape::tensor) + ranks of a stage x stage. All are of one kind, each
// is valid and of its stage; what ranks do together (joint_execution.h) has one
// order in each lane, also in the middle of visits; and all of them end, so no
// order causes a deadlock. Errors name the rank as well. Each rank whose
// program is equal to another's costs only a comparison.
absl::Status ValidatePrograms(const std::vector<Program>& programs);

// The same where all ranks of a stage have one program: by stage.
absl::Status ValidateStages(const std::vector<Program>& stages);

}  // namespace delink
