// Gathers what happens in a run, once, and tells it to the sinks
// (recipes/record/sink.h). None of it changes the run.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/record/run_event.h"
#include "recipes/record/sink.h"
#include "recipes/run/meter.h"
#include "recipes/run/position.h"
#include "recipes/run/setup.h"
#include "recipes/run/stage_run.h"

namespace delink {

// Every rank has one; that of rank 0 alone tells.
class Recorder {
 public:
  // Measures the machine's peak, and opens the sinks. Collective. The run
  // outlives the recorder.
  static absl::StatusOr<Recorder> Create(const RunSetup& run);
  Recorder(Recorder&&) = default;

  double Seconds() const { return meter_.Seconds(); }  // that the run has taken
  double Flops() const { return flops_; }  // of all steps, on all ranks
  RunMoment Now(const RunPosition& at) const;

  absl::Status Begin(StageRun& stage, const RunPosition& at);
  // After a step. Measures norms by layer where it is time to; collective then.
  // Where a device works by itself the step is told with the next call, Flush
  // among them.
  absl::Status Step(StageRun& stage, const RunPosition& at, double lr,
                    const StepResult& result);
  // Tells the step that was not told yet.
  absl::Status Flush();
  // Anything else. The time until here is no step's.
  absl::Status Tell(const RunEvent& event);

 private:
  Recorder(const RunSetup& run, Meter meter)
      : run_(&run), meter_(std::move(meter)), flops_(run.beginning().flops()) {}
  // Of a step that took so many seconds. Collective with a pipeline.
  absl::StatusOr<std::optional<PipelineWait>> MaybeAddWaits(
      StageRun& stage, int64_t step, const WaitedSeconds& waited,
      double seconds);
  absl::StatusOr<std::optional<NormsByLayer>> MaybeMeasureNorms(
      StageRun& stage, const RunPosition& at);
  absl::Status TellSinks(const RunEvent& event);

  const RunSetup* run_;
  Meter meter_;
  double flops_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::optional<StepDone> untold_;  // rank 0
};

// What there is to tell of a stage; no loss. Collective over `world`, the
// stage's ranks.
absl::StatusOr<StageFacts> FactsOf(StageRun& stage, Communicator& world);

}  // namespace delink
