// Collects the events of a run and passes them to the sinks
// (recipes/record/sink.h). Recording does not change the run.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/record/run_event.h"
#include "recipes/record/sink.h"
#include "recipes/run/observers/meter.h"
#include "recipes/run/observers/step_check.h"
#include "recipes/run/position/position.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Every rank has one; only rank 0's writes to sinks.
class Recorder {
 public:
  // Measures the machine's peak, and opens the sinks. Collective. The run
  // outlives the recorder.
  static absl::StatusOr<Recorder> Create(const RunSetup& run);
  Recorder(Recorder&&) = default;

  double Seconds() const { return meter_.Seconds(); }  // of the run so far
  double Flops() const { return flops_; }  // of all steps, on all ranks
  RunMoment Now(const RunPosition& at) const;

  absl::Status Begin(StageRun& stage, const RunPosition& at);
  // After a step. If norms by layer are due, measures them; then collective. On
  // a GPU, the step is recorded by the next call, which may be Flush.
  absl::Status Step(StageRun& stage, const RunPosition& at, double lr,
                    const StepResult& result);
  // Records the pending step, if there is one.
  absl::Status Flush();
  // Any other event. The time until here counts for no step.
  absl::Status Tell(const RunEvent& event);

 private:
  Recorder(const RunSetup& run, Meter meter)
      : run_(&run),
        meter_(std::move(meter)),
        check_(run),
        flops_(run.beginning().flops()) {}
  // For a step that took `seconds`. Collective with a pipeline.
  absl::StatusOr<std::optional<PipelineWait>> MaybeAddWaits(
      StageRun& stage, int64_t step, const WaitedSeconds& waited,
      double seconds);
  absl::StatusOr<std::optional<NormsByLayer>> MaybeMeasureNorms(
      StageRun& stage, const RunPosition& at);
  absl::Status TellSinks(const RunEvent& event);

  const RunSetup* run_;
  Meter meter_;
  StepCheck check_;
  double flops_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  // Of rank 0.
  std::optional<StepDone> untold_;
  std::optional<StepsTimed> timed_;  // to tell after that
};

// The facts of a stage, without its loss. Collective over `world`, the stage's
// ranks.
absl::StatusOr<StageFacts> FactsOf(StageRun& stage, Communicator& world);

}  // namespace delink
