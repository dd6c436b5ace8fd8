// Whole runs of tiny models, in this process: ranks are threads. For tests of
// what must not change a run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"
#include "recipes/models/model_list.h"
#include "recipes/record/trace_file.h"
#include "tests/testing/temp_dir.h"

namespace delink {
class RunSetup;
}  // namespace delink

namespace delink::testing {

// A row of metrics.jsonl that has a loss.
struct Step {
  int64_t step = 0;
  int64_t tokens = 0;
  std::string stage;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

struct Switch {
  int64_t step = 0;
  double loss_before = 0, loss_after = 0;
};

struct Probe {
  int64_t step = 0;
  double agreement = 0, rho = 0;
};

// A step's norms by layer.
struct Norms {
  int64_t step = 0;
  std::vector<std::string> layers;
  std::vector<double> gradient, weight;
  friend bool operator==(const Norms&, const Norms&) = default;
};

// Every tensor of a checkpoint's index by path ("/model/...",
// "/optimizer/.../m"), links followed.
using Tensors = std::map<std::string, std::vector<float>>;

struct RunRequest {
  int ranks = 1;
  std::vector<std::string> sets;  // over the fixture's recipe
  std::vector<std::string> data;  // in the place of those of the fixture
  std::vector<std::string> last_rank_sets;  // besides, on the last rank alone
  std::string out;                          // under the fixture's folder
  std::optional<int64_t> until_step;
  bool resume = false;
  std::string resume_from;
  bool overwrite = false;
  std::string init;
  std::string trace;  // a path
  TraceSteps trace_steps = {};
  bool lane_threads = false;
  int ranks_per_node = 0;  // 0: all are on one
  ModelList (*models)() = BuiltInModels;
  std::function<absl::Status(RunSetup&)> instead;  // of training
};

// The recipes that every property of a run is tested with: of each kind of
// model one.
inline constexpr const char* kTinyRecipes[] = {"tiny", "tiny_llama",
                                               "tiny_moe"};
// Those whose blocks are all alike and cut over tensor ranks; enough for tests
// that take long.
inline constexpr const char* kDenseRecipes[] = {"tiny", "tiny_llama"};

// Documents of no word to sixty letters, one a line of JSON, so that rows of 32
// tokens have long and short ones, and empty ones.
std::string DocumentLines();

// A corpus of bytes in a folder of its own, and runs of recipes/RECIPE.toml
// beside it.
class TinyRuns {
 public:
  // `text`: of the corpus; empty: words that are made up. It is one document,
  // unless the name of its file says that it is lines of JSON.
  explicit TinyRuns(const std::string& recipe = "tiny",
                    const std::string& text = "",
                    const std::string& file = "text.txt");
  // Another corpus of bytes; its folder.
  std::string AddCorpus(const std::string& name, const std::string& text) const;
  // What to train on where a request does not say, by default the corpus; and
  // what every run has, before what its own request says.
  std::vector<std::string> data, sets;
  // The folder of a run.
  std::string Folder(const std::string& out) const { return dir_ / out; }
  absl::Status Run(const RunRequest& request) const;
  // A run that must go well.
  void Go(const RunRequest& request) const;
  std::vector<Step> Steps(const std::string& out) const;
  std::vector<Switch> Switches(const std::string& out) const;
  std::vector<Probe> Probes(const std::string& out) const;
  std::vector<Norms> NormRows(const std::string& out) const;
  // All of metrics.jsonl.
  std::vector<nlohmann::json> Rows(const std::string& out) const;
  // These keys of each row, where it has them: what must not hang on time and
  // memory.
  std::vector<nlohmann::json> RowsOf(
      const std::string& out, const std::vector<std::string>& keys) const;
  // Of the checkpoint after `step`.
  Tensors Load(const std::string& out, int64_t step) const;
  std::string Checkpoint(const std::string& out, int64_t step) const;
  // Two runs' losses and gradient norms, and all that their checkpoints after
  // `step` hold, are equal bit for bit.
  void ExpectSameBits(const std::string& a, const std::string& b,
                      int64_t step) const;

 private:
  TempDir dir_;
  std::string recipe_;  // its path
};

// Largest relative difference of the losses, step by step.
double LossDifference(const std::vector<Step>& a, const std::vector<Step>& b);
// The q-quantile of |a - b| over all elements of /model.
double WeightDifference(const Tensors& a, const Tensors& b, double quantile);
// Whether every step, or tensor, is equal bit for bit; says which is not.
std::string FirstDifference(const std::vector<Step>& a,
                            const std::vector<Step>& b);
std::string FirstDifference(const Tensors& a, const Tensors& b);

}  // namespace delink::testing
