// From an order of units to programs: what a schedule of a pipeline, or of one
// stage, has to say is in which order its chunks go forward and backward.
// Everything else is written once, here.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/step/instruction.h"
#include "framework/step/plan/planner.h"

namespace delink {

// Forward or backward of all layers of a chunk, or half of a backward. Of
// several micro-batches: layer by layer, each with all of them.
struct Unit {
  Op op = Op::kForward;  // kBackward, kBackwardInput, kBackwardWeight
  int32_t chunk = 0;
  int32_t micro_batch = 0;
  int32_t count = 1;  // micro-batches from there on
  friend bool operator==(const Unit&, const Unit&) = default;
};

// The units of a stage in a step, in their order: pure, each unit of the
// stage's chunks once forward and once backward, whole or in two halves, with
// micro-batches ascending in the backward of each chunk.
using StageSchedule =
    std::function<std::vector<Unit>(const ProgramShape& shape, int32_t stage)>;

// Programs of all kinds, in that order; `recompute`: of every block.
//
// A step: a unit is the visits of its layers, a kLoss behind the last forward,
// and where the neighbour chunk is of another stage the kSend of what leaves.
// The prologue, whose input has no gradient, goes backward whole, with the
// first half of the blocks behind it.
// What comes is received one unit early: the kRecv of a unit stands before the
// visits of the unit before it, so that it has room of its own and arrives
// while they are at work. A slab's kReduce stands right behind the last
// backward that contributes to it, and its kSquares behind that, while the
// gradient is in the caches; but where several ranks reduce it the squares wait
// until the backward, which they would hold up, is over, or, of a gradient that
// has its home elsewhere and is to leave, until the next one is complete. What
// comes then would wait for its room. kUpdate of the slabs follows kNorm in the
// order in which a forward needs them, each with its kGather where the shape
// says it gathers. Slabs that several stages use are reduced behind all visits,
// in ascending order, and updated before all others, likewise: every stage has
// these in one order.
//
// Gradients: that step up to its kNorm. An evaluation: its forwards, all
// kForwardOnly, micro-batch after micro-batch, and kSum; a diagnosis has
// kInspect behind each kForward. A probe: one micro-batch through all chunks
// forward and backward, with kProbe of each slab that a block shares behind its
// kBackward, which keeps those gradients apart, behind all of it kReduce of
// those that blocks of several stages share, ascending, and kSum.
Planner PlannerOf(StageSchedule schedule, bool recompute);

}  // namespace delink
