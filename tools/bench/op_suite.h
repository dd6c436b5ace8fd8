// The kernels by themselves: how long each takes, and how near that is to what
// the machine can do.
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
  bool memory_bound = false;  // it is the bytes that bound it
  double peak = 0;            // of what the machine can do: 1 is all of it
};

// On the target's memory, with nothing of a call in the caches, but where
// `quick`. An error where there is not enough memory.
absl::StatusOr<OpMeasure> MeasureOp(const OpCase& op, Target& target,
                                    const Machine& machine, bool quick);

}  // namespace delink::bench
