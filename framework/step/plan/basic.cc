#include "framework/step/plan/basic.h"

#include <cstdint>
#include <vector>

#include "framework/base/check.h"
#include "framework/step/plan/assemble.h"

namespace delink {
namespace {

// A run of micro-batches goes through the layers together: one at a time, or
// all.
std::vector<Unit> InRuns(const ProgramShape& shape, int32_t run) {
  DELINK_CHECK_EQ(shape.stages, 1) << "a pipeline has schedules of its own";
  std::vector<Unit> units;
  for (int32_t begin = 0; begin < shape.micro_batches; begin += run) {
    for (const Op op : {Op::kForward, Op::kBackward}) {
      units.push_back({.op = op, .micro_batch = begin, .count = run});
    }
  }
  return units;
}

}  // namespace

Planner BasicPlanner(const BasicPlanOptions& options) {
  const bool all = options.order == MicroBatchOrder::kLayerMajor;
  return PlannerOf(
      [all](const ProgramShape& shape, int32_t) {
        return InRuns(shape, all ? shape.micro_batches : 1);
      },
      options.recompute);
}

Program PlanStep(const ProgramShape& shape, const BasicPlanOptions& options) {
  return BasicPlanner(options)(PassKind::kStep, shape, 0);
}

Program PlanGradients(const ProgramShape& shape,
                      const BasicPlanOptions& options) {
  return BasicPlanner(options)(PassKind::kGradients, shape, 0);
}

Program PlanProbe(const ProgramShape& shape, const BasicPlanOptions& options) {
  return BasicPlanner(options)(PassKind::kProbe, shape, 0);
}

Program PlanEvaluation(const ProgramShape& shape) {
  return BasicPlanner({})(PassKind::kEvaluation, shape, 0);
}

Program PlanDiagnosis(const ProgramShape& shape) {
  return BasicPlanner({})(PassKind::kDiagnosis, shape, 0);
}

}  // namespace delink
