// The basic planners: one pipeline stage, everything on the device.
#pragma once

#include "framework/step/plan/planner.h"
#include "framework/step/program/instruction.h"

namespace delink {

struct BasicPlanOptions {
  MicroBatchOrder order = MicroBatchOrder::kMicroBatchMajor;
  bool recompute = false;  // of every block
};

// Programs as in assemble.h, in these orders. Micro-batch-major, 2 layers
// sharing slab 0, 2 micro-batches:
//   F(0,a) F(1,a) B(1,a) B(0,a) F(0,b) F(1,b) B(1,b) B(0,b)
//   Reduce(0) Squares(0) Norm Update(0)
// where the last layer's F and B are one, Loss (docs/step-program.md draws
// more). In both orders backward visits micro-batches in ascending order, and
// passes without backward run micro-batch after micro-batch.
Planner BasicPlanner(const BasicPlanOptions& options);

// The programs of a BasicPlanner.
Program PlanStep(const ProgramShape& shape, const BasicPlanOptions& options);
Program PlanGradients(const ProgramShape& shape,
                      const BasicPlanOptions& options);
Program PlanProbe(const ProgramShape& shape, const BasicPlanOptions& options);
Program PlanEvaluation(const ProgramShape& shape);
Program PlanDiagnosis(const ProgramShape& shape);

}  // namespace delink
