// The loop of a run. setup/setup.cc prepares it; observers/recorder.cc records
// its events.
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
#include "recipes/record/progress.h"
#include "recipes/run/observers/checkpointer.h"
#include "recipes/run/observers/diagnosis.h"
#include "recipes/run/observers/probe.h"
#include "recipes/run/observers/recorder.h"
#include "recipes/run/observers/validation.h"
#include "recipes/run/position/position.h"
#include "recipes/run/setup/run_watch.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/run/switch/stage_switch.h"

namespace delink {
namespace {

double RateOf(const Recipe& recipe, const RunPosition& at) {
  const ScheduleConfig& c = recipe.schedule;
  const Stage& stage = recipe.stages[at.stage()];
  return LearningRate({.kind = c.kind,
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

// A stage may wait for a plateau or a disagreement that never occurs.
void WarnOfStagesLeft(const RunSetup& run, const RunPosition& at) {
  const std::vector<Stage>& stages = run.recipe().stages;
  if (!run.first() || at.stage() + 1 == stages.size()) return;
  std::vector<std::string> left;
  for (size_t i = at.stage() + 1; i < stages.size(); ++i) {
    left.push_back(stages[i].name);
  }
  DELINK_LOG(kWarning)
      << "the run ended in stage " << stages[at.stage()].name
      << ", because the condition of its `until` was never met; "
      << absl::StrJoin(left, ", ")
      << " was not reached; add a fraction, tokens or steps to `until`, or "
         "weaken its threshold";
}

// The signal on which the ranks stop, the same on all ranks.
absl::StatusOr<int> Stopped(const RunSetup& run, int64_t step) {
  DELINK_ASSIGN_OR_RETURN(
      const int64_t signal,
      AllReduceScalar(run.world().comm(), int64_t{StopSignal()},
                      ReduceOp::kMax));
  if (run.first()) {
    DELINK_LOG(kInfo) << SignalName(static_cast<int>(signal))
                      << ": stopped after step " << step
                      << "; continue from here with --resume";
  }
  return static_cast<int>(signal);
}

// Continues after a skipped step, or ends the run.
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
                       << "; " << skips.skipped() << " skipped so far";
  return absl::OkStatus();
}

// The work and the events after the last step.
absl::Status End(const RunSetup& run, Recorder& recorder, StageRun& stage,
                 const RunPosition& at) {
  if (at.step() == run.recipe().schedule.steps) {
    WarnOfStagesLeft(run, at);
  } else if (!at.EndsEarly().empty()) {  // maybe before this process began
    DELINK_RETURN_IF_ERROR(
        recorder.Tell(RunEndsEarly{.at = recorder.Now(at),
                                   .why = at.EndsEarly(),
                                   .best_loss = at.best().loss(),
                                   .best_step = at.best().step()}));
  }
  DELINK_RETURN_IF_ERROR(stage.executor().Drain());
  return recorder.Tell(RunEnded{.at = recorder.Now(at),
                                .peak_memory = PeakResidentBytes(),
                                .sources = run.sources().StatesAt(at.blend())});
}

}  // namespace

absl::StatusOr<int> Train(RunSetup& run, std::optional<int64_t> until_step) {
  const Recipe& recipe = run.recipe();
  Communicator& world = *run.env().world;
  // In this order, because the stage leaves no room to measure the peak.
  DELINK_ASSIGN_OR_RETURN(Recorder recorder, Recorder::Create(run));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<StageRun> stage,
                          run.beginning().MakeStage(run.env()));
  RunPosition at = run.beginning().Position();
  DELINK_RETURN_IF_ERROR(recorder.Begin(*stage, at));

  Validator validator(run, recorder);
  Checkpointer checkpointer(run, recorder);
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
          stage, SwitchStage(run, recorder, std::move(stage), at, over));
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
    // Overlaps the device's work.
    DELINK_RETURN_IF_ERROR(recorder.Flush());
    DELINK_RETURN_IF_ERROR(begun);
    run.watch().Begin(Lane::kCompute, step, "reading the next batch");
    if (step < last) {
      batches.ReadAhead(stage->cut(), at.samples(), at.blend());
    }
    run.watch().Begin(Lane::kCompute, step, "waiting for the device");
    DELINK_ASSIGN_OR_RETURN(const StepResult result,
                            stage->executor().Finish());
    const TriedStep tried{step, lr, &batch, result};
    if (result.skipped) {
      DELINK_RETURN_IF_ERROR(PassOver(run, *stage, tried, most, at.skips()));
    } else {
      at.skips().Add(result.grad_norm);
      MaybeKeepOutlier(run, outliers, *stage, tried);
    }
    at.Advance(result.skipped ? std::nullopt : std::optional(result.loss));
    DELINK_RETURN_IF_ERROR(recorder.Step(*stage, at, lr, result));
    DELINK_RETURN_IF_ERROR(MaybeProbe(run, recorder, *stage, tried, at));
    DELINK_ASSIGN_OR_RETURN(over, at.StageOver(world));
    const Asked asked = run.watch().AskedBy(result.votes);
    const bool ends = at.step() == last;
    DELINK_RETURN_IF_ERROR(
        run.MaybeTrace(*stage, at.step(), ends || asked.stop));
    DELINK_ASSIGN_OR_RETURN(const bool best,
                            validator.MaybeValidate(*stage, at, ends));
    const bool early = !at.EndsEarly().empty();
    const bool saves = ends || early || !over.empty() || asked.stop ||
                       asked.save || (best && recipe.run.keep_best);
    DELINK_RETURN_IF_ERROR(checkpointer.MaybeSave(*stage, at, saves));
    if (early && !ends) {
      DELINK_RETURN_IF_ERROR(run.MaybeTrace(*stage, at.step(), true));
    }
    run.watch().Saved(asked);
    if (asked.stop && !ends) return Stopped(run, at.step());
  }
  DELINK_RETURN_IF_ERROR(End(run, recorder, *stage, at));
  return 0;
}

}  // namespace delink
