// The loop of a run. What it stands on is made in setup.cc; what only watches
// is in observers.cc.
#include "recipes/run/pretrain.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/optim/schedule.h"
#include "parallel/watch/signals.h"
#include "recipes/run/diagnosis.h"
#include "recipes/run/observers.h"
#include "recipes/run/position.h"
#include "recipes/run/run_watch.h"
#include "recipes/run/setup.h"
#include "recipes/run/stage_run.h"
#include "recipes/run/stage_switch.h"

namespace delink {
namespace {

double RateOf(const Recipe& recipe, const RunPosition& at) {
  const ScheduleConfig& c = recipe.schedule;
  const Stage& stage = recipe.stages[at.stage()];
  return LearningRate({.kind = static_cast<Schedule::Kind>(c.kind),
                       .peak = recipe.optimizer.lr,
                       .steps = c.steps,
                       .warmup = c.warmup_steps(),
                       .decay = c.decay_steps(),
                       .final_ratio = c.final_ratio},
                      {.scale = stage.lr_scale,
                       .begin = at.begin().step,
                       .warmup = stage.warmup},
                      at.step());
}

// Measures how well the gradients of the layers that share agree, where it is
// time to. Says nothing of a step that was skipped, or of gradients that are
// not finite.
absl::Status MaybeProbe(const Recipe& recipe, Observers& observers,
                        StageRun& stage, const TriedStep& tried,
                        RunPosition& at) {
  const int64_t every = recipe.ProbeEvery(at.stage());
  if (every == 0 || at.step() % every != 0 || !stage.shares() ||
      tried.result.skipped) {
    return absl::OkStatus();
  }
  DELINK_ASSIGN_OR_RETURN(const std::vector<SlabAgreement> slabs,
                          stage.executor().Probe(*tried.batch, at.step()));
  const Agreement all = Sum(slabs);
  if (!std::isfinite(all.together + all.apart)) return absl::OkStatus();
  at.AddProbe(all);
  return observers.OnProbe(stage, at, slabs);
}

// Where it is time to, and with `ends` or `saves`.
absl::Status ValidateAndSave(RunSetup& run, Observers& observers,
                             StageRun& stage, RunPosition& at, bool ends,
                             bool saves) {
  DELINK_ASSIGN_OR_RETURN(const std::optional<double> loss,
                          observers.MaybeValidate(stage, at, ends));
  const bool best = loss.has_value() && at.AddValidation(*loss);
  const bool early = !at.EndsEarly().empty();
  DELINK_RETURN_IF_ERROR(observers.MaybeSave(
      stage, at,
      ends || saves || early || (best && run.recipe().run.keep_best)));
  if (!early || at.step() == run.recipe().schedule.steps) {
    return absl::OkStatus();
  }
  return run.MaybeTrace(stage, at.step(), true);
}

// A stage may wait for a plateau or for disagreement that never comes.
void WarnOfStagesLeft(const RunSetup& run, const RunPosition& at) {
  const std::vector<Stage>& stages = run.recipe().stages;
  if (!run.first() || at.stage() + 1 == stages.size()) return;
  std::vector<std::string> left;
  for (size_t i = at.stage() + 1; i < stages.size(); ++i) {
    left.push_back(stages[i].name);
  }
  DELINK_LOG(kWarning) << "the run ended in stage " << stages[at.stage()].name
                       << ": what its `until` waits for never came, and "
                       << absl::StrJoin(left, ", ")
                       << " was not reached; give `until` a fraction, tokens "
                          "or steps besides, or a weaker threshold";
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

// Goes on after a step that was skipped, or ends the run.
absl::Status PassOver(const RunSetup& run, StageRun& stage,
                      const TriedStep& tried, double most, SkipWatch& skips) {
  const StepResult& result = tried.result;
  const bool finite = std::isfinite(result.loss + result.grad_norm);
  DELINK_ASSIGN_OR_RETURN(
      const bool passes,
      skips.Passes(tried.step, result.grad_norm, finite, most));
  if (!passes) return NotFinite(run, stage, tried);
  if (!run.first()) return absl::OkStatus();
  DELINK_LOG(kWarning) << "step " << tried.step << " is skipped: "
                       << (finite ? absl::StrCat("its gradient norm is ",
                                                 result.grad_norm,
                                                 ", more than ", most)
                                  : "its loss or gradient is not finite")
                       << "; " << skips.skipped() << " so far";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> Train(RunSetup& run, std::optional<int64_t> until_step) {
  const Recipe& recipe = run.recipe();
  Communicator& world = *run.env().world;
  // In this order: the stage leaves no room to measure the machine's peak in.
  DELINK_ASSIGN_OR_RETURN(Observers observers, Observers::Create(run));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage, run.Begin());
  RunPosition at = run.Position();
  DELINK_RETURN_IF_ERROR(observers.OnStart(*stage, at));

  BatchAhead batches(run.sources().train());
  OutlierWatch outliers(recipe.run.outlier);
  const SignalCatcher signals;
  const int64_t steps = recipe.schedule.steps;
  const int64_t last = std::min(until_step.value_or(steps), steps);
  DELINK_ASSIGN_OR_RETURN(std::string over, at.StageOver(world));
  while (at.step() < last && at.EndsEarly().empty()) {
    while (!over.empty()) {
      at.EnterNextStage();
      DELINK_ASSIGN_OR_RETURN(
          stage, SwitchStage(run, observers, std::move(stage), at, over));
      DELINK_ASSIGN_OR_RETURN(over, at.StageOver(world));
    }
    if (at.DataOver()) break;  // a later stage has none either
    const int64_t step = at.step() + 1;
    run.watch().Begin(Lane::kCompute, step, "reading the batch");
    DELINK_ASSIGN_OR_RETURN(
        const HostBatch batch,
        batches.Take(stage->cut(), at.samples(), at.blend()));
    const double lr = RateOf(recipe, at);
    const double most = at.skips().Threshold();
    const absl::Status begun = stage->executor().Begin(batch, step, lr, most);
    // While the device works.
    DELINK_RETURN_IF_ERROR(observers.Flush());
    DELINK_RETURN_IF_ERROR(begun);
    run.watch().Begin(Lane::kCompute, step, "reading the next batch");
    if (step < last) {
      batches.ReadAhead(stage->cut(), at.samples(), at.blend());
    }
    run.watch().Begin(Lane::kCompute, step, "waiting for the device");
    const StepResult result = stage->executor().Finish();
    const TriedStep tried{step, lr, &batch, result};
    if (result.skipped) {
      DELINK_RETURN_IF_ERROR(PassOver(run, *stage, tried, most, at.skips()));
    } else {
      at.skips().Add(result.grad_norm);
      MaybeKeepOutlier(run, outliers, *stage, tried);
    }
    at.Advance(result.skipped ? std::nullopt : std::optional(result.loss));
    DELINK_RETURN_IF_ERROR(observers.OnStep(*stage, at, lr, result));
    DELINK_RETURN_IF_ERROR(MaybeProbe(recipe, observers, *stage, tried, at));
    DELINK_ASSIGN_OR_RETURN(over, at.StageOver(world));
    const Asked asked = run.watch().AskedBy(result.votes);
    const bool ends = at.step() == last;
    DELINK_RETURN_IF_ERROR(
        run.MaybeTrace(*stage, at.step(), ends || asked.stop));
    DELINK_RETURN_IF_ERROR(
        ValidateAndSave(run, observers, *stage, at, ends || at.DataOver(),
                        !over.empty() || asked.stop || asked.save));
    run.watch().Saved(asked);
    if (asked.stop && !ends) return Stopped(run, at.step());
  }
  if (at.step() == steps) {
    WarnOfStagesLeft(run, at);
  } else if (!at.EndsEarly().empty()) {  // maybe before this process began
    DELINK_RETURN_IF_ERROR(observers.OnEarlyEnd(at));
  }
  DELINK_RETURN_IF_ERROR(observers.OnEnd(*stage, at));
  return 0;
}

}  // namespace delink
