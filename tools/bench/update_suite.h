// Updates on the host: what the fused pass makes of memory, beside three passes
// and beside memory alone, in every form and on one and more threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/timing.h"
#include "tools/bench/update_case.h"

namespace delink::bench {

// By a clock: wall time or, on a machine that others use as well, the time that
// the process had processors, over its threads; memory they use all the same.
struct UpdateTimes {
  Timing fused, three_passes;  // seconds of a step
  Timing memory;               // that moving alone took, by the faster stores
  // Of what was measured in turn: three passes over fused, memory over fused.
  Timing ratio, of_memory;
};

struct UpdateMeasure {
  UpdateForm form;
  int threads = 1;
  int64_t parameters = 0;
  double bytes = 0;  // that the fused pass reads and writes, a parameter
  bool past_caches = false;  // the faster stores
  UpdateTimes wall, processor;
};

struct UpdateOptions {
  std::vector<int> threads = {1};
  int64_t parameters = 32'000'000;
  int64_t turns = 15;
};

// All forms. ResourceExhausted where there is not enough memory: some 50 bytes
// a parameter.
absl::StatusOr<std::vector<UpdateMeasure>> MeasureUpdates(
    const UpdateOptions& options,
    const std::function<void(const std::string&)>& progress);

}  // namespace delink::bench
