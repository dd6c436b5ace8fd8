// The basic planners: one pipeline stage, everything on the device.
#pragma once

#include "framework/step/instruction.h"
#include "framework/step/plan/planner.h"

namespace delink {

struct BasicPlanOptions {
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  bool recompute = false;  // of every block
};

// One training step (docs/step-program.md draws more):
//   micro-batch-major, 2 layers sharing slab 0, 2 micro-batches:
//     F(0,a) F(1,a) B(1,a) B(0,a) F(0,b) F(1,b) B(1,b) B(0,b)
//     Reduce(0) Squares(0) Norm Update(0)
// where the last layer's F and B are one, Loss. A slab's kReduce stands right
// behind the last backward that contributes to it, and its kSquares behind
// that, while the gradient is in the caches; but where several ranks reduce it
// waits until the backward, which it would hold up, is over. kUpdate of the
// slabs follows kNorm in forward order, each with its kFetch where the shape
// says it gathers.
// Backward visits micro-batches in ascending order in both orders. kReduce of
// several ranks and kFetch are in the network lane, all else in the compute
// lane: kNorm too, which exchanges only a few numbers.
Program PlanStep(const ProgramShape& shape, const BasicPlanOptions& options);

// That step up to its kNorm: nothing is updated, and so nothing fetched.
Program PlanGradients(const ProgramShape& shape,
                      const BasicPlanOptions& options);

// The visits of a step of one micro-batch, with kProbe of each slab that a
// block shares behind its kBackward, which keeps those gradients apart. At the
// end kSum.
Program PlanProbe(const ProgramShape& shape, const BasicPlanOptions& options);

// Forward only, micro-batch after micro-batch: kForward of all layers but the
// last, then kLoss without its backward; all with flag kForwardOnly. At the end
// kSum. A diagnosis has kInspect behind each kForward.
Program PlanEvaluation(const ProgramShape& shape);
Program PlanDiagnosis(const ProgramShape& shape);

// All of them.
Planner BasicPlanner(const BasicPlanOptions& options);

}  // namespace delink
