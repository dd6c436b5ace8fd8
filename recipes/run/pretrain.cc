// The loop of a run. What it stands on is made in setup.cc; what only watches
// is in observers.cc.
#include "recipes/run/pretrain.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/optim/schedule.h"
#include "parallel/signals.h"
#include "recipes/run/observers.h"
#include "recipes/run/run_watch.h"
#include "recipes/run/setup.h"
#include "recipes/run/stage_run.h"

namespace delink {
namespace {

// Delinks: the loss on one fixed batch is taken on both sides of the switch.
absl::StatusOr<std::unique_ptr<StageRun>> SwitchStage(
    const RunSetup& run, Observers& observers, std::unique_ptr<StageRun> stage,
    size_t next, int64_t step) {
  SwitchEvent event{.step = step, .from = stage->stage().name};
  DELINK_ASSIGN_OR_RETURN(event.before, observers.Describe(*stage));
  DELINK_ASSIGN_OR_RETURN(stage,
                          StageRun::Switch(run.env(), std::move(stage), next));
  DELINK_ASSIGN_OR_RETURN(event.after, observers.Describe(*stage));
  event.to = stage->stage().name;
  DELINK_RETURN_IF_ERROR(observers.OnSwitch(event));
  return stage;
}

double RateOf(const Recipe& recipe, size_t index, int64_t step) {
  const ScheduleConfig& c = recipe.schedule;
  const Stage& stage = recipe.stages[index];
  return LearningRate({.kind = static_cast<Schedule::Kind>(c.kind),
                       .peak = recipe.optimizer.lr,
                       .steps = c.steps,
                       .warmup = c.warmup_steps(),
                       .decay = c.decay_steps(),
                       .final_ratio = c.final_ratio},
                      // A checkpoint delinked by hand may be ahead of its time.
                      {.scale = stage.lr_scale,
                       .begin = std::min(recipe.StageBegin(index), step),
                       .warmup = stage.warmup},
                      step);
}

// A step that could not be taken: says where the first bad number is.
absl::Status NotFinite(StageRun& stage, const HostBatch& batch, int64_t step) {
  DELINK_ASSIGN_OR_RETURN(const std::string where,
                          stage.executor().Diagnose(batch, step));
  return absl::DataLossError(absl::StrCat(
      "step ", step, ": the loss or its gradient is not finite: ", where,
      "; nothing was updated. Lower optimizer.lr, lengthen schedule.warmup, or "
      "resume from the last checkpoint with another setting: --resume --set "
      "optimizer.lr=..."));
}

// The signal on which the ranks stop, the same on all of them.
absl::StatusOr<int> Stopped(const RunSetup& run, int64_t step) {
  DELINK_ASSIGN_OR_RETURN(
      const int64_t signal,
      AllReduceScalar(run.world().comm(), int64_t{StopSignal()},
                      ReduceOp::kMax));
  if (run.first()) {
    DELINK_LOG(kInfo) << SignalName(static_cast<int>(signal))
                      << ": stopped after step " << step
                      << "; go on from here with --resume";
  }
  return static_cast<int>(signal);
}

}  // namespace

absl::StatusOr<int> Train(RunSetup& run, std::optional<int64_t> until_step) {
  const Recipe& recipe = run.recipe();
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage, run.Begin());
  DELINK_ASSIGN_OR_RETURN(Observers observers, Observers::Create(run));
  DELINK_RETURN_IF_ERROR(observers.OnStart(*stage));

  const SignalCatcher signals;
  int64_t step = run.step();
  const int64_t steps = recipe.schedule.steps;
  const int64_t last = std::min(until_step.value_or(steps), steps);
  while (step < last) {
    const size_t index = std::max(recipe.StageAt(step), stage->index());
    if (index != stage->index()) {
      DELINK_ASSIGN_OR_RETURN(
          stage, SwitchStage(run, observers, std::move(stage), index, step));
    }
    DELINK_ASSIGN_OR_RETURN(
        const HostBatch batch,
        ReadBatch(run.train(), stage->cut(), step * recipe.data.batch));
    const double lr = RateOf(recipe, stage->index(), step);
    DELINK_ASSIGN_OR_RETURN(const StepResult result,
                            stage->executor().TrainStep(batch, step + 1, lr));
    if (result.skipped) return NotFinite(*stage, batch, step + 1);
    ++step;
    DELINK_RETURN_IF_ERROR(observers.OnStep(*stage, step, lr, result));
    const Asked asked = run.watch().AskedBy(result.votes);
    const bool ends = step == last || step == recipe.StageEnd(stage->index());
    DELINK_RETURN_IF_ERROR(observers.MaybeValidate(*stage, step, step == last));
    DELINK_RETURN_IF_ERROR(
        observers.MaybeSave(*stage, step, ends || asked.stop || asked.save));
    run.watch().Saved(asked);
    if (asked.stop && step < last) return Stopped(run, step);
  }
  DELINK_RETURN_IF_ERROR(observers.OnEnd(*stage, step));
  return 0;
}

}  // namespace delink
