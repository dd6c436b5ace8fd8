// How long the stages of a pipeline work and are idle in a step, by a joint
// execution of their programs in which only the computation of visits takes
// time. A model that is cut unevenly causes idle time too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/step/program/instruction.h"

namespace delink {

// What a visit computes, in any unit. A kLoss has both; `backward` includes
// recompute. The second half of a backward has `backward` only.
struct VisitCost {
  double forward = 0, backward = 0;
};
// Asked of visits only.
using VisitCosts = std::function<VisitCost(const Instruction& visit)>;

// A span in which a stage does the same work without a pause.
struct PipelineWork {
  char sign = ' ';  // as DrawPipeline has it
  double begin = 0, end = 0;
};

struct PipelineTime {
  std::vector<std::vector<PipelineWork>> stages;  // each in its order

  double end() const;  // when the last stage is done
  // The share of all stages' time until then in which they are idle.
  double bubble() const;
};

// `stages`: by stage, programs of a step that ValidateStages passes.
PipelineTime TimePipeline(const std::vector<Program>& stages,
                          const VisitCosts& costs);

// A row a stage, time to the right: the micro-batch's letter for forward, its
// capital for backward, ' for the second half of a backward, . for nothing.
// After z, letters begin anew. A column is as long as the shortest work and
// shows the work in its middle. If there are more than `columns`, a row has
// this length: the first columns, ~ for those left out, and the last.
std::vector<std::string> DrawPipeline(const PipelineTime& time, int columns);

}  // namespace delink
