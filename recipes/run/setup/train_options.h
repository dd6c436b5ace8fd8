// What `delink train` is asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace delink
