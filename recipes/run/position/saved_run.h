// The state of a run in its checkpoint: the named values of the header
// (framework/checkpoint/format.md).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/record/source_count.h"

namespace delink {

struct SavedRun {
  // From the header of the checkpoint at `path`. InvalidArgument: impossible
  // values. NotFound: missing values.
  static absl::StatusOr<SavedRun> From(const std::string& path,
                                       const CheckpointHeader& header);
  static absl::StatusOr<SavedRun> Read(const std::string& path);
  NamedValues Values() const;

  // What is known of each source; works for checkpoints of early builds too.
  std::vector<SourceCount> Counts() const;

  int64_t step = 0;     // optimizer steps done; the header's own
  int64_t tokens = 0;   // tokens trained on
  int64_t samples = 0;  // global samples consumed: the data position
  std::string stage;    // name of the stage that the parameters belong to
  int64_t stage_index = 0;
  int64_t stage_begin_step = 0;  // steps and samples when the stage began
  int64_t stage_begin_samples = 0;
  // Measurements that decide when the stage ends: losses of its last steps;
  // probes of gradient agreement, (step, together, apart) each.
  std::vector<double> stage_losses;
  std::vector<double> stage_probes;
  // Results of the validations so far (best_validation.h).
  std::vector<double> validation;
  // Their data (setup/sources.h); empty in checkpoints of early builds.
  std::string validated_on;
  // The state of skipping: counts and recent norms (skip_watch.h).
  std::vector<double> skipped;
  std::string corpus;  // digest of the training corpus; of several, with commas
  // The sources of the next batch; none in checkpoints of early builds, whose
  // `samples` are all of `corpus`.
  std::vector<SourceCount> sources;
  // The origin of imported weights ("a Hugging Face folder, llama"). Then
  // nothing else is saved, and no run can resume. Empty: saved by a run.
  std::string imported;
  double seconds = 0;  // spent so far
  // Computed by all steps so far, on all ranks. NaN (not known) in checkpoints
  // of early builds and of runs resumed from one.
  double flops = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace delink
