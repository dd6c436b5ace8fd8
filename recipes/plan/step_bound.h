// A lower bound of the seconds of a step on a machine (machine_step.h), without
// imagining a rank: for a search that need not simulate what is slower.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/mesh.h"
#include "framework/step/plan/measure.h"
#include "framework/step/time/network_time.h"
#include "recipes/plan/search_space.h"
#include "recipes/run/dry_run/planned_machine.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe.h"

namespace delink {

class StepBound {
 public:
  // For stage `index`; env.recipe is the recipe up to it, in any form that is
  // possible. Keeps a copy of `env`.
  static absl::StatusOr<StepBound> Create(const RunEnv& env, size_t index,
                                          const PlannedMachine& machine);

  // All ranks do the model's work at their peak, without exchanges or waiting.
  double OfWork(Recompute recompute) const;

  // A pipeline stage does its visits of all micro-batches, at the rate of the
  // largest products, and each waits for the exchanges in its middle. Before
  // the first of them, the stages before it run a forward of their first chunk;
  // after the last of them, these run its backward, of which zero-bubble may
  // leave the second halves for later. Then the norm of all gradients ends the
  // step. Errors: those of FitForm.
  absl::StatusOr<double> Of(const StageForm& form);

 private:
  // Of a visit of a layer, for one micro-batch.
  struct VisitSeconds {
    double forward = 0, input = 0, weight = 0;  // all backward is of `input`
  };
  // What a bound depends on.
  struct Form {
    Mesh mesh;
    bool recompute = false;  // of blocks
    bool halves = false;     // backwards of blocks
    int64_t chunks = 1;      // of a pipeline stage
    int64_t micro_batches = 1;
    // Prologue, blocks_, epilogue.
    std::vector<LayerPlan> layers;
  };

  StepBound(const RunEnv& env, size_t index, const PlannedMachine& machine);
  absl::Status FindBlocks();
  absl::StatusOr<Form> Measure(const StageForm& form);
  double SecondsOf(const Form& form, const LayerPlan& layer, Op op,
                   uint8_t flags) const;
  VisitSeconds VisitsOf(const Form& form, size_t layer) const;
  std::vector<int> ChunksOf(const Form& form) const;

  RunEnv env_;
  size_t index_;
  double rank_flops_;
  double ranks_;
  Network network_;
  // Blocks that stand for others of equal work; by place of the stage, the
  // layer of Form::layers that its own is like.
  std::vector<int> blocks_;
  std::vector<size_t> places_;
  double sequence_flops_ = 0, again_flops_ = 0;  // of a sequence
};

}  // namespace delink
