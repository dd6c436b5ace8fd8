// Turns an order of units into programs. A schedule, of a pipeline or of one
// stage, only says in which order its chunks run forward and backward.
// Everything else is written once, here.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/step/plan/planner.h"
#include "framework/step/program/instruction.h"

namespace delink {

// Forward or backward of all layers of a chunk, or half of a backward. With
// several micro-batches it runs layer by layer, each for all of them.
struct Unit {
  Op op = Op::kForward;  // kBackward, kBackwardInput, kBackwardWeight
  int32_t chunk = 0;
  int32_t micro_batch = 0;
  int32_t count = 1;  // micro-batches from there on
  friend bool operator==(const Unit&, const Unit&) = default;
};

// The units of a stage in a step, in their order. A pure function. It returns
// each of the stage's chunks and micro-batches once forward and once backward,
// whole or in two halves; micro-batches ascend in each chunk's backward.
using StageSchedule =
    std::function<std::vector<Unit>(const ProgramShape& shape, int32_t stage)>;

// Programs of all kinds, in that order; `recompute`: of every block.
//
// A step: a unit is the visits of its layers, a kLoss behind the last forward,
// and the kSend to the neighbour chunk if that is of another stage. The
// prologue, whose input has no gradient, runs its backward whole, in the unit
// with the first halves of its chunk's blocks.
// Inputs are received one unit early: the kRecv of a unit stands before the
// visits of the unit before it, so that it has its own memory and arrives while
// they run. A slab's kReduce stands right behind the last backward that
// contributes to it, and its kSquares behind that, while the gradient is in the
// caches. But if several ranks reduce it, its squares would hold up the
// backward and wait until that is over. For a host-resident gradient they wait
// only until the next gradient is complete, because later ones need its copy.
// kUpdates follow kNorm in the order in which a forward needs the slabs, each
// with its kGather if the slab gathers. Slabs that several stages use are
// reduced behind all visits and updated before all others, both in ascending
// order, so that every stage has these in one order.
//
// Gradients: that step up to its kNorm. An evaluation: its forwards, all
// kForwardOnly, micro-batch after micro-batch, and kSum. A diagnosis: the same
// with kInspect behind each kForward. A probe: one micro-batch through all
// chunks forward and backward. A kBackward keeps gradients of slabs that blocks
// share apart, and a kProbe of each such slab follows it. Behind all visits are
// kReduce of slabs that ShapeTable::IsReducedByProbe, ascending, and kSum.
Planner PlannerOf(StageSchedule schedule, bool recompute);

}  // namespace delink
