// What watches a run: the log, the live line, metrics, validation, checkpoints.
// None of it changes the run.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/record/event_file.h"
#include "recipes/record/progress.h"
#include "recipes/record/run_folder.h"
#include "recipes/record/run_peak.h"
#include "recipes/run/norms_by_layer.h"
#include "recipes/run/position.h"
#include "recipes/run/setup.h"
#include "recipes/run/source_log.h"

namespace delink {

// One side of a switch.
struct StageDescription {
  int64_t unique_parameters = 0;
  int64_t virtual_parameters = 0;
  MemoryAccount account;
  double flops_per_token = 0;
  double loss = 0;  // on one fixed batch
};

struct SwitchEvent {
  int64_t step = 0;
  std::string why;  // the stage before is over
  std::string from, to;
  StageDescription before, after;
};

class Observers {
 public:
  static absl::StatusOr<Observers> Create(RunSetup& run);
  Observers(Observers&&) = default;

  // Prints parameters, the memory account, FLOPs and an estimate of the time,
  // and notes what the run's numbers are measured on.
  absl::Status OnStart(StageRun& stage, const RunPosition& at);
  // Collective. Where a device works by itself the step is told with the next
  // call, Flush among them.
  absl::Status OnStep(StageRun& stage, const RunPosition& at, double lr,
                      const StepResult& result);
  // Tells the step that was not told yet.
  absl::Status Flush();
  absl::Status OnProbe(StageRun& stage, const RunPosition& at,
                       const std::vector<SlabAgreement>& slabs);
  absl::Status OnSwitch(const SwitchEvent& event);
  // The run ends here, before its last step: its data are over, or validations
  // say so. Also where one that goes on had ended before.
  absl::Status OnEarlyEnd(const RunPosition& at);
  absl::Status OnEnd(StageRun& stage, const RunPosition& at);

  // Every so many steps, and with `force`. Returns the loss, the same on all
  // ranks, of a validation that every course of the run has at this step: not
  // of one at --until-step alone.
  absl::StatusOr<std::optional<double>> MaybeValidate(StageRun& stage,
                                                      const RunPosition& at,
                                                      bool force);
  absl::Status MaybeSave(StageRun& stage, const RunPosition& at, bool force);

  // Collective.
  absl::StatusOr<StageDescription> Describe(StageRun& stage);

 private:
  explicit Observers(RunSetup& run) : run_(&run) {}
  // A step that was done; what is told of it.
  struct DoneStep {
    int64_t step = 0, tokens = 0;  // of the run, after it
    std::string stage;
    size_t stage_index = 0;
    double flops_per_token = 0;
    double lr = 0;
    StepResult result;
    double now = 0, took = 0;  // seconds
    int64_t step_tokens = 0;
    Blend blend;  // after it
    std::optional<NormsByLayer> norms;
  };
  double Seconds() const;
  // Where it is time to.
  absl::StatusOr<std::optional<NormsByLayer>> MaybeMeasureNorms(
      StageRun& stage, const RunPosition& at);

  RunSetup* run_;
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
  std::optional<Metrics> metrics_;   // rank 0
  std::optional<EventFile> events_;  // rank 0
  std::unique_ptr<Progress> progress_;
  std::optional<SourceLog> source_log_;  // rank 0
  std::optional<RunPeak> peak_;
  double last_seconds_ = 0;         // when the step before ended
  std::optional<DoneStep> untold_;  // rank 0
  double smooth_step_seconds_ = 0;  // a running mean
};

}  // namespace delink
