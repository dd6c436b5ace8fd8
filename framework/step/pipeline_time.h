// How long the stages of a pipeline are at work and idle in a step, on paper:
// what the joint execution of their programs says where visits take what they
// compute and nothing else takes any time. A model that is cut unevenly leaves
// time idle too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/step/instruction.h"

namespace delink {

// What a visit computes, in any unit; of a kLoss both, and backward with what
// it makes again. Of a second half of a backward, backward alone.
struct VisitCost {
  double forward = 0, backward = 0;
};
// Asked of visits only.
using VisitCosts = std::function<VisitCost(const Instruction& visit)>;

// What a stage does without a pause.
struct PipelineWork {
  char sign = ' ';  // as DrawPipeline has it
  double begin = 0, end = 0;
};

struct PipelineTime {
  std::vector<std::vector<PipelineWork>> stages;  // each in its order

  double end() const;  // when the last stage is through
  // The part of all stages' time until then in which they do nothing.
  double bubble() const;
};

// `stages`: by stage, programs of a step that ValidateStages passes.
PipelineTime TimePipeline(const std::vector<Program>& stages,
                          const VisitCosts& costs);

// A row a stage, time to the right: the micro-batch's letter forward, its
// capital backward, ' for the second half of a backward, . for nothing. After z
// letters begin anew. A column is as long as the shortest work and shows what
// is done in its middle. Where more than `columns` come of that, a row is of
// this length: the first of them, ~ for what is left out, and the last.
std::vector<std::string> DrawPipeline(const PipelineTime& time, int columns);

}  // namespace delink
