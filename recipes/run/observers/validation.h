// Measures the loss of a stage on the validation corpora of a run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/run/observers/recorder.h"
#include "recipes/run/position/position.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/setup/sources.h"
#include "recipes/run/stage/stage_run.h"

namespace delink {

// Means over tokens, nats.
struct Validation {
  double loss = 0;  // over the tokens of all sources
  // By the source's name; empty where there is only one.
  std::vector<std::pair<std::string, double>> of;
};

// On the first `sequences` of each source's validation corpus, or all of it if
// it has fewer, independent of the stage's batch and the number of ranks.
// Collective; the same on all ranks.
absl::StatusOr<Validation> Validate(const Sources& sources, int64_t sequences,
                                    StageRun& stage, Communicator& comm);

class Validator {
 public:
  // Both outlive it.
  Validator(const RunSetup& run, Recorder& recorder)
      : run_(run), recorder_(recorder) {}

  // Validates every run.validate_every steps, at the last step, when the data
  // end, and with `force`. Adds the loss, the same on all ranks, to the
  // position, unless `force` alone caused this validation. Returns whether the
  // loss is the lowest so far. Collective.
  absl::StatusOr<bool> MaybeValidate(StageRun& stage, RunPosition& at,
                                     bool force);

 private:
  const RunSetup& run_;
  Recorder& recorder_;
};

}  // namespace delink
