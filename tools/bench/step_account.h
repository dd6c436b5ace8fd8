// From what was recorded of some steps to where their time went.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/param_store.h"
#include "framework/step/trace.h"
#include "layers/kernels/timed/timed.h"
#include "tools/bench/step_suite.h"

namespace delink::bench {

// Of steps that one thread took, one after the other.
struct StepRecord {
  const Trace* trace = nullptr;
  const KernelCalls* calls = nullptr;
  const ParamStore* store = nullptr;
  int64_t first = 1;            // step that counts; those before warmed up
  std::vector<double> seconds;  // of each step that counts
};

// By `measure->memory` sets `parts`, `blocks`, `kernels` and `flops`.
void AccountForTime(const StepRecord& record, const Machine& machine,
                    StepMeasure* measure);

}  // namespace delink::bench
