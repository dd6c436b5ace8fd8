// What a checkpoint keeps of the run that wrote it: the named values of its
// header (framework/checkpoint/format.md).
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
  // From the header of the checkpoint at `path`. InvalidArgument, NotFound: it
  // says what cannot be, or not all.
  static absl::StatusOr<SavedRun> From(const std::string& path,
                                       const CheckpointHeader& header);
  static absl::StatusOr<SavedRun> Read(const std::string& path);
  NamedValues Values() const;

  // What is known of each source, also by a checkpoint of an early build.
  std::vector<SourceCount> Counts() const;

  int64_t step = 0;     // optimizer steps done; the header's own
  int64_t tokens = 0;   // tokens trained on
  int64_t samples = 0;  // global samples consumed: the data position
  std::string stage;    // name of the stage that the parameters belong to
  int64_t stage_index = 0;
  int64_t stage_begin_step = 0;  // steps and samples when the stage began
  int64_t stage_begin_samples = 0;
  // What has been measured for the decision when the stage ends: losses of its
  // last steps; probes of gradient agreement, (step, together, apart) each.
  std::vector<double> stage_losses;
  std::vector<double> stage_probes;
  // What validations have found so far (best_validation.h).
  std::vector<double> validation;
  // What they were made on (sources.h); empty in checkpoints of early builds.
  std::string validated_on;
  // Which steps were skipped, and what decides of the next (skip_watch.h).
  std::vector<double> skipped;
  std::string corpus;  // digest of the training corpus; of several, with commas
  // What the next batch comes from; none in checkpoints of early builds, whose
  // `samples` are all of `corpus`.
  std::vector<SourceCount> sources;
  // Where weights come from that no run of ours has made ("a Hugging Face
  // folder, llama"): then there is nothing else, and nothing to go on with.
  // Empty: of a run.
  std::string imported;
  double seconds = 0;  // spent so far
  // Computed by all steps so far, on all ranks; NaN, not known, in checkpoints
  // of early builds and of runs that went on from one.
  double flops = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace delink
