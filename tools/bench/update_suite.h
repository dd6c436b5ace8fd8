// Updates on the host: compares the fused pass with three passes and with the
// memory traffic alone, for every form, on one and on more threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/timing.h"
#include "tools/bench/update_case.h"

namespace delink::bench {

// By one clock: wall time, or the process's CPU time divided by its threads.
// The latter is for a machine with other users, but they still share its memory
// bandwidth.
struct UpdateTimes {
  Timing fused, three_passes;  // seconds of a step
  Timing memory;               // seconds of MoveAlone, with the faster stores
  // Ratios within a turn: three passes over fused, memory over fused.
  Timing ratio, of_memory;
};

struct UpdateMeasure {
  UpdateForm form;
  int threads = 1;
  int64_t parameters = 0;
  double bytes = 0;  // read and written by the fused pass, per parameter
  bool past_caches = false;  // the faster stores bypass the caches
  UpdateTimes wall, processor;
};

struct UpdateOptions {
  std::vector<int> threads = {1};
  int64_t parameters = 32'000'000;
  int64_t turns = 15;
};

// Measures all forms. ResourceExhausted: there is not enough memory, some 50
// bytes a parameter.
absl::StatusOr<std::vector<UpdateMeasure>> MeasureUpdates(
    const UpdateOptions& options,
    const std::function<void(const std::string&)>& progress);

}  // namespace delink::bench
