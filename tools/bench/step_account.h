// Computes from recorded steps how their time was spent.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/param_store.h"
#include "framework/step/time/trace.h"
#include "layers/kernels/timed/timed.h"
#include "tools/bench/step_suite.h"

namespace delink::bench {

// The record of steps that one thread took, one after the other.
struct StepRecord {
  const Trace* trace = nullptr;
  const KernelCalls* calls = nullptr;
  const ParamStore* store = nullptr;
  int64_t first = 1;            // first step that counts, after the warm-up
  std::vector<double> seconds;  // of each step that counts
};

// Sets `parts`, `blocks`, `kernels` and `flops`. Reads `measure->memory`.
void AccountForTime(const StepRecord& record, const Machine& machine,
                    StepMeasure* measure);

}  // namespace delink::bench
