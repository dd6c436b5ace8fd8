// `delink sweep`: a grid of runs, each a `delink train` of its own.
//
// The folder of a sweep:
//   runs/NAME/         the folder of a run
//   runs/NAME.toml     what it was started with
//   output/NAME.txt    what it printed
//   sweep.csv          one row a run, written anew whenever one ends
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
  int64_t jobs = 1;                  // runs at once, which share the cores out
  std::vector<std::string> program;  // that trains: its path, and `train`
};

// The runs in the order in which they are started; every recipe has been read,
// with what is set in it. InvalidArgument: the spec is wrong, or a recipe is,
// with the settings that make it so.
struct SweepPlan {
  sweep::Spec spec;
  std::vector<sweep::GridRun> runs;
};
absl::StatusOr<SweepPlan> PlanSweep(const SweepOptions& options,
                                    const ModelList& models);

// The words that start a run.
std::vector<std::string> CommandOf(const SweepOptions& options,
                                   const SweepPlan& plan,
                                   const sweep::GridRun& run);

struct SweepOutcome {
  int finished = 0;  // with those that were finished before
  int failed = 0;
  int signal = 0;  // that ended it; 0: none
};

// Runs what is not finished: a run that was cut goes on from its newest
// checkpoint, one that failed is tried again. A run that fails stops no other.
// SIGINT and SIGTERM are handed on to the runs, which save, and end it.
// FailedPrecondition: another sweep is at work in the folder. AlreadyExists: a
// run there was started with other settings, or is of a sweep of other axes.
absl::StatusOr<SweepOutcome> RunSweep(const SweepOptions& options,
                                      const SweepPlan& plan, World& world);

}  // namespace delink
