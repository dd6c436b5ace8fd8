// Times each kernel by itself and compares it with the machine's peak.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/machine.h"
#include "tools/bench/op_case.h"
#include "tools/bench/timing.h"

namespace delink::bench {

struct OpMeasure {
  std::string name, shape;
  DType dtype = DType::kF32;
  Work work;
  Timing seconds;
  bool memory_bound = false;
  double peak = 0;  // fraction of the machine's peak
};

// Uses the target's memory. A call finds nothing of the last one in the caches
// unless `quick`. An error if there is not enough memory.
absl::StatusOr<OpMeasure> MeasureOp(const OpCase& op, Target& target,
                                    const Machine& machine, bool quick);

}  // namespace delink::bench
