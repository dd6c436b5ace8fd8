// Reads the folder of a run (recipes/record/run_folder.h) leniently. If a run
// is still running, was stopped or died half-way through a line, it is read as
// far as possible; `notes` say what is missing or odd.
//
// Missing numbers are NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/report/columns.h"

namespace delink::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Where something happened, on each possible axis of a plot.
struct Place {
  double step = 0;
  double tokens = kUnknown;
  double seconds = kUnknown;  // since the run began, pauses left out
  double flops = kUnknown;    // computed so far, by all ranks
};

// Bytes of a rank by kind, as in metrics.jsonl.
struct BytesRecord {
  double weights = kUnknown, gradients = kUnknown, state = kUnknown;
  double activations = kUnknown, copies = kUnknown, records = kUnknown;
  double total = kUnknown;
};

struct StageRecord {
  std::string name;
  Place begin;
  std::string why;          // reason that the previous stage ended
  double depth = kUnknown;  // blocks that it visits
  double unique_parameters = kUnknown, virtual_parameters = kUnknown;
  double loss_before = kUnknown, loss_after = kUnknown;  // at the switch
  // Seconds of a step, as planned and as measured in its first hundred.
  double planned_step = kUnknown, measured_step = kUnknown;
  BytesRecord bytes;
};

// One start or resume of the run, and the machine that it ran on.
struct StartRecord {
  Place at;
  std::string time, version, commit, processor;
  std::string command;  // for a shell
  double cores = kUnknown, ranks = kUnknown, threads = kUnknown;
  double peak_flops = kUnknown;  // of matmuls, all ranks; the best until the
                                 // next start
};

// Norms of layers, while the layers have the same names.
struct NormsRecord {
  std::vector<std::string> layers;
  Columns places;  // Place, and "sum" of the gradient's norms
  std::vector<std::vector<double>> gradient, weight;  // by row, then layer
};

// The load of each expert as a ratio to the mean, by layer.
struct LoadMap {
  double step = 0;
  std::vector<std::vector<double>> load;
};

// How routers chose, while the layers with experts have the same names.
struct RoutingRecord {
  std::vector<std::string> layers;
  Columns places;  // Place, and "worst": the largest maximal violation
  // By name; each by row, then layer. Of loads the "least", "lower_quartile",
  // "median", "upper_quartile" and "largest"; "max_violation", "dropped",
  // "entropy", "aux_loss", "z".
  std::map<std::string, std::vector<std::vector<double>>> measures;
  // Rows at equal distances, and the last; none of more than 256 experts.
  std::vector<LoadMap> maps;
  size_t stride = 1, rows_with_maps = 0;

  // Keeps some `budget` numbers at most.
  void AddMap(LoadMap map, size_t budget);
};

// The amount read from one source of a blend.
struct SourceRecord {
  std::string name;
  double samples = kUnknown, tokens = kUnknown, epochs = kUnknown;
};

enum class RunState {
  kEmpty,     // nothing was measured
  kRunning,   // a process is running it
  kDied,      // its process died in the middle
  kStopped,   // ended properly, before its last step
  kFinished,  // completed its last step
};

struct RunRecord {
  std::string folder;  // as given
  std::string name;    // short, unique in the report
  RunState state = RunState::kEmpty;
  std::string ended_early;  // the reason, if nothing followed
  std::vector<std::string> notes;
  double planned_steps = kUnknown;

  // Keys of the resolved recipe with their values in TOML: "optimizer.lr".
  std::vector<std::pair<std::string, std::string>> recipe;
  std::vector<StartRecord> starts;
  std::vector<StageRecord> stages;
  Columns steps;  // Place, loss, lr, grad_norm, tokens_per_s, peak_percent
  Columns validations;  // Place, loss, "loss SOURCE" for each source
  std::vector<SourceRecord> sources;  // as of the last step; of a blend
  // Place, rho, "rho PART" for each part, and rho as a multiple of that of
  // unrelated gradients.
  Columns agreement;
  std::vector<NormsRecord> norms;
  std::vector<RoutingRecord> routing;
  int64_t skipped_steps = 0;
  double peak_memory = kUnknown;  // bytes of rank 0's process
};

// An empty folder is a run of which nothing is known.
// FailedPrecondition: `folder` holds something, but no run.
absl::StatusOr<RunRecord> ReadRun(const std::string& folder);

// Gives each run its name: the last part of its folder's path, with as many
// parts before it as make the name unique.
void NameRuns(std::vector<RunRecord>* runs);

}  // namespace delink::report
