// `delink sweep`: a grid of runs, each with its own `delink train`.
//
// The folder of a sweep:
//   runs/NAME/         the folder of a run
//   runs/NAME.toml     its recipe's path and digest, and its settings
//   output/NAME.txt    its output
//   sweep.csv          one row a run, rewritten whenever a run ends
//   sweep.json         the same for `delink report`
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/launch/launch.h"
#include "recipes/models/model_list.h"
#include "tools/sweep/spec.h"

namespace delink {

struct SweepOptions {
  std::string spec;                  // a path
  std::vector<std::string> sets;     // "key=value", of every run
  std::string out;                   // the folder
  int64_t jobs = 1;                  // concurrent runs, which share the cores
  std::vector<std::string> program;  // to train: its path, and `train`
};

// The runs in the order in which they are started. Every recipe has been read
// with its settings. InvalidArgument: the spec is wrong, or a recipe with some
// settings is, which the message names.
struct SweepPlan {
  sweep::Spec spec;
  std::vector<sweep::GridRun> runs;
};
absl::StatusOr<SweepPlan> PlanSweep(const SweepOptions& options,
                                    const ModelList& models);

// The command that starts a run.
std::vector<std::string> CommandOf(const SweepOptions& options,
                                   const SweepPlan& plan,
                                   const sweep::GridRun& run);

struct SweepOutcome {
  int finished = 0;  // with those that were finished before
  int failed = 0;
  int signal = 0;  // the signal that ended it; 0: none
};

// Runs all runs that are not finished. An interrupted run resumes from its
// newest checkpoint, and a failed run is tried again. A run that fails does not
// stop the others. SIGINT and SIGTERM end the sweep; they are passed to the
// runs, which save. FailedPrecondition: another sweep uses the folder.
// AlreadyExists: a run in it was started with other settings, or belongs to a
// sweep with other axes.
absl::StatusOr<SweepOutcome> RunSweep(const SweepOptions& options,
                                      const SweepPlan& plan, World& world);

}  // namespace delink
