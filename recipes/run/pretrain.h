// `delink train`: one run, from a recipe to its last checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipes/record/trace_file.h"

namespace delink {

struct TrainOptions {
  std::string recipe;             // path
  std::vector<std::string> sets;  // "key=value"
  std::string out;                // folder of the run; empty: runs/RECIPE
  bool resume = false;
  std::string resume_from;  // a checkpoint; empty: the newest whole one of out
  bool overwrite = false;
  std::string init;  // a checkpoint whose weights a new run begins with
  std::optional<int64_t> until_step;  // stop (and save) there
  int64_t threads = 0;                // a rank; 0: the recipe's, or shared out
  std::string trace;                  // a file for a trace; empty: none
  TraceSteps trace_steps;
};

class RunSetup;

// Trains until the recipe's end, until `until_step`, or until a signal asks all
// ranks to stop; then they finish the step and save. Returns the signal, or 0.
// An error during training may occur on one rank only; the caller must then end
// the other ranks.
absl::StatusOr<int> Train(RunSetup& run, std::optional<int64_t> until_step);

}  // namespace delink
