#include "recipes/run/switch/stage_switch.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/device/profile.h"
#include "framework/sharing/calibrate.h"
#include "framework/sharing/resolve.h"
#include "recipes/run/observers/diagnosis.h"
#include "recipes/run/observers/validation.h"

namespace delink {
namespace {

// Scales the state of a new stage by the gradients of the next batches. Leaves
// out a gradient that is not finite if the recipe skips such steps.
absl::Status Calibrate(const RunSetup& run, StageRun& stage,
                       std::vector<SlabOrigin> origins,
                       const RunPosition& position) {
  const Recipe& recipe = run.recipe();
  Calibration calibration = Calibration::Create(
      stage.store(), std::move(origins), recipe.optimizer.clip);
  const int64_t batches = stage.stage().calibration_batches;
  // It may read past the end of sources that do not repeat.
  Blend ahead = position.blend().Endless();
  for (int64_t k = 0; k < batches; ++k) {
    DELINK_ASSIGN_OR_RETURN(
        const HostBatch batch,
        ReadBatch(run.sources().train(), stage.cut(),
                  position.samples() + k * stage.cut().global(), ahead));
    ahead.Skip(stage.cut().global());
    const int64_t step = position.step() + 1 + k;
    DELINK_ASSIGN_OR_RETURN(const StepResult result,
                            stage.executor().Gradients(batch, step));
    if (result.skipped && !recipe.optimizer.skip.nonfinite) {
      return NotFinite(run, stage,
                       {.step = step, .batch = &batch, .result = result});
    }
    if (result.skipped) {
      if (!run.first()) continue;
      DELINK_LOG(kWarning) << "calibration leaves out batch " << k + 1 << " of "
                           << batches << ": its loss or gradient is not finite";
      continue;
    }
    DELINK_RETURN_IF_ERROR(calibration.AddBatch(
        stage.store(), static_cast<double>(result.tokens), *run.env().world));
  }
  return calibration.Apply(stage.store(), *run.env().world);
}

// On one fixed batch. Collective.
absl::StatusOr<double> Loss(const RunSetup& run, StageRun& stage) {
  DELINK_ASSIGN_OR_RETURN(const Validation validation,
                          Validate(run.sources(), run.recipe().data.batch,
                                   stage, run.world().comm()));
  return validation.loss;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageRun>> SwitchStage(
    const RunSetup& run, Recorder& recorder, std::unique_ptr<StageRun> stage,
    const RunPosition& position, const std::string& why) {
  const ProfileRange range("stage switch");
  const RunEnv& env = run.env();
  Communicator& world = run.world().comm();
  // The facts are those of the old stage's own layout; losses are compared in
  // one layout.
  DELINK_ASSIGN_OR_RETURN(StageFacts before, FactsOf(*stage, world));
  DELINK_RETURN_IF_ERROR(stage->TakeLayout(position.stage()));
  DELINK_ASSIGN_OR_RETURN(before.loss, Loss(run, *stage));
  const SharingMap sharing = stage->store().sharing();
  DELINK_ASSIGN_OR_RETURN(
      stage, StageRun::Switch(env, std::move(stage), position.stage()));
  if (stage->stage().state == StatePolicy::kCalibrated) {
    DELINK_ASSIGN_OR_RETURN(std::vector<SlabOrigin> origins,
                            RelationOf(*env.registry, env.model->blocks(),
                                       sharing, stage->store().sharing()));
    DELINK_RETURN_IF_ERROR(
        Calibrate(run, *stage, std::move(origins), position));
  }
  DELINK_ASSIGN_OR_RETURN(StageFacts after, FactsOf(*stage, world));
  DELINK_ASSIGN_OR_RETURN(after.loss, Loss(run, *stage));
  DELINK_RETURN_IF_ERROR(
      recorder.Tell(StageSwitched{.at = recorder.Now(position),
                                  .stage_index = position.stage(),
                                  .why = why,
                                  .before = before,
                                  .after = after}));
  return stage;
}

}  // namespace delink
