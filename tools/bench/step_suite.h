// Whole training steps, taken by the code that `train` takes them with, on
// random tokens: how long, which part and which kernel of it, and what memory.
//
// Parts come from the executor's trace, kernels from a device that notes every
// call (layers/kernels/timed). Both are of the same steps. On a GPU these are
// further steps, since noting costs a little; their times are the device's own.
// Steps with planes at home on the host have neither: the host updates on a
// thread of its own, and what notes kernels is of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/step/memory.h"
#include "tools/bench/machine.h"
#include "tools/bench/shapes.h"
#include "tools/bench/timing.h"

namespace delink::bench {

// Seconds of a step. Zeroing is what fills gradients with zeros; it is not
// counted in the part where it happens.
struct StepParts {
  double forward = 0;   // without the head
  double head = 0;      // head and loss, forward and backward in one
  double backward = 0;  // without the head; forward again under recompute
  double reduce = 0;    // gradients over ranks, and gathering of weights
  double norm = 0;
  double update = 0;
  double zeroing = 0;
  double other = 0;  // the step less all of these: batch, waiting for lanes

  double total() const {
    return forward + head + backward + reduce + norm + update + zeroing + other;
  }
};

// What a step spends on the parameters of the blocks, whatever it is trained
// on: this is what shrinks when blocks share. What makes one norm of the slabs'
// squares is the blocks' by the part of the parameters that they have.
struct BlockUpkeep {
  double update = 0, reduce = 0, norm = 0, zeroing = 0;  // seconds of a step
  double total() const { return update + reduce + norm + zeroing; }
};

// All calls of a kernel in one kind of layer, in a step; its time is the median
// over steps.
struct KernelShare {
  std::string layer;   // embed, blocks, head
  std::string kernel;  // as Work calls it; adamw and norm
  double calls = 0;
  double seconds = 0;
  double share = 0;  // of the step
  Work work;         // of all calls; .kernel is not set
  bool memory_bound = false;
  double peak = 0;  // of what the machine can do
};

struct StepMeasure {
  StepCase step;
  int64_t unique_parameters = 0, virtual_parameters = 0;
  Timing seconds;
  double tokens_per_s = 0;
  double flops = 0;  // of forward and backward, no recompute
  double peak = 0;   // of the matmul's
  // Of the time that all kernels together take at the least, each by its
  // arithmetic or its bytes.
  double light = 0;
  StepParts parts;
  BlockUpkeep blocks;
  std::vector<KernelShare> kernels;  // the longest first
  MemoryAccount memory;
  int64_t resident_before = 0;  // bytes of the process, before the model
  int64_t peak_resident = 0;    // bytes of the process, at most
  // The most that was allocated at one time: to be held against what `memory`
  // says is.
  int64_t allocated_bytes = 0;
  // Of a GPU, at the end, as the driver counts: to be held against its total.
  int64_t device_bytes = 0;
  double loss = 0;  // of the last step
};

struct StepOptions {
  double seconds = 4;   // at least, of the steps that count
  int64_t least = 5;    // steps
  int64_t exactly = 0;  // steps; 0: as the two above say
};

// On a device of its own, of the kind that the machine was measured with.
absl::StatusOr<StepMeasure> MeasureStep(const StepCase& step, DeviceKind device,
                                        const ModelList& models,
                                        const Machine& machine,
                                        const StepOptions& options);

}  // namespace delink::bench
