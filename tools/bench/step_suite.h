// Whole training steps on random tokens, run by `train`'s own code: their time,
// by part and by kernel, and their memory.
//
// The times of parts are from the executor's trace, those of kernels from a
// device that records every call (layers/kernels/timed), both in the same
// steps. On a GPU these are additional steps, since recording costs a little;
// their times are the device's own. Steps with host-resident planes have
// neither: the host updates on its own thread, but the record of kernels needs
// a single thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/step/plan/memory.h"
#include "tools/bench/machine.h"
#include "tools/bench/shapes.h"
#include "tools/bench/timing.h"

namespace delink::bench {

// Seconds of a step. `zeroing` is the time to fill gradients with zeros; it is
// not counted in the part where it happens.
struct StepParts {
  double forward = 0;   // without the head
  double head = 0;      // head and loss, forward and backward in one
  double backward = 0;  // without the head; with recompute's forward
  double reduce = 0;    // gradients over ranks, and all-gathers of weights
  double norm = 0;
  double update = 0;
  double zeroing = 0;
  double other = 0;  // the step less all of these: batch, waiting for lanes

  double total() const {
    return forward + head + backward + reduce + norm + update + zeroing + other;
  }
};

// The time that a step spends on the parameters of the blocks, for any number
// of tokens. It is what shrinks when blocks share. The blocks' part of the time
// to compute one norm from the slabs' squares is proportional to their
// parameters.
struct BlockUpkeep {
  double update = 0, reduce = 0, norm = 0, zeroing = 0;  // seconds of a step
  double total() const { return update + reduce + norm + zeroing; }
};

// All calls of a kernel in one kind of layer, in a step. `seconds` is the
// median over steps.
struct KernelShare {
  std::string layer;   // embed, blocks, head
  std::string kernel;  // Work::kernel, or adamw or norm
  double calls = 0;
  double seconds = 0;
  double share = 0;  // of the step
  Work work;         // of all calls; .kernel is not set
  bool memory_bound = false;
  double peak = 0;  // fraction of the machine's peak
};

struct StepMeasure {
  StepCase step;
  int64_t unique_parameters = 0, virtual_parameters = 0, active_parameters = 0;
  Timing seconds;
  double tokens_per_s = 0;
  double flops = 0;  // of forward and backward, no recompute
  double peak = 0;   // fraction of the matmul's peak
  // The least time of all kernels together, each by its arithmetic or its
  // bytes, as a fraction of the step's time.
  double light = 0;
  StepParts parts;
  BlockUpkeep blocks;
  std::vector<KernelShare> kernels;  // the longest first
  MemoryAccount memory;
  int64_t resident_before = 0;  // bytes of the process, before the model
  int64_t peak_resident = 0;    // bytes of the process, at most
  // The most that was allocated at one time; compare it with what `memory` says
  // is allocated.
  int64_t allocated_bytes = 0;
  // On a GPU, at the end, as the driver counts; compare it with memory's total.
  int64_t device_bytes = 0;
  double loss = 0;  // of the last step
};

struct StepOptions {
  double seconds = 4;   // least time of the steps that count
  int64_t least = 5;    // least number of steps
  int64_t exactly = 0;  // number of steps; 0: the two above decide
};

// Uses its own device, of the kind that the machine was measured with.
absl::StatusOr<StepMeasure> MeasureStep(const StepCase& step, DeviceKind device,
                                        const ModelList& models,
                                        const Machine& machine,
                                        const StepOptions& options);

}  // namespace delink::bench
