// The file of a sweep: a recipe, and what to vary in it (docs/sweep.md).
//
//   recipe = "quickstart_p2r.toml"      # relative to this file
//   set    = ["data.train=corpus/train"]
//   seeds  = [1, 2, 3]
//
//   [[axis]]
//   key    = "optimizer.lr"
//   values = [1e-3, 2e-3]
//
//   [[axis]]                            # keys that move together
//   name   = "share"
//   keys   = ["stage.0.share", "stage.0.lr_scale"]
//   values = [["all", 0.4], ["groups:2", 0.6]]
//   labels = ["all", "groups"]
//
//   [[skip]]                            # what is left out of the grid
//   where  = { share = "groups", lr = 2e-3 }
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace delink::sweep {

// The key of an axis that chooses the recipe itself.
inline constexpr char kRecipeKey[] = "recipe";

struct Axis {
  struct Choice {
    std::string label;
    std::vector<std::string> values;  // TOML, one for each key
  };
  std::string name;
  std::vector<std::string> keys;
  std::vector<Choice> choices;
};

// Combinations that have one of the labels on each of these axes.
using Skip = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct Spec {
  std::string path, folder;  // of the file
  std::string recipe;        // a path; empty if an axis chooses it
  std::vector<std::string> sets;
  std::vector<int64_t> seeds;  // empty: the recipe's
  int64_t ranks = 1;           // of each run
  // Where losses are tabulated.
  std::vector<int64_t> at_tokens;
  std::vector<int64_t> at_seconds;
  std::vector<double> at_flops;
  std::vector<Axis> axes;
  std::vector<Skip> skips;
};

// InvalidArgument: lists all errors, one a line, with their places.
// NotFound: there is no such file.
absl::StatusOr<Spec> ReadSpec(const std::string& path);

// One run of the grid.
struct GridRun {
  std::string name;  // of its folder: its settings, "lr=0.002_seed=1"
  std::string recipe;
  std::vector<std::string> sets;
  // By axis, and the seed last where there are seeds.
  std::vector<std::pair<std::string, std::string>> settings;
};

// All runs: all combinations with the first seed, then all with the next.
// InvalidArgument: the grid is empty or too large; two runs have the same name;
// `sets` has a key that an axis or `seeds` varies.
absl::StatusOr<std::vector<GridRun>> ExpandGrid(const Spec& spec);

}  // namespace delink::sweep
