// What a step has the lanes of a rank do, and how long that takes at the rates
// of a machine: what it is bound by.
#pragma once

#include <cstdint>
#include <string>

#include "framework/module/param_store.h"
#include "framework/step/instruction.h"
#include "framework/step/memory.h"
#include "offload/plan/bounds.h"

namespace delink {

// Of a rank and step.
struct StepLoad {
  double flops = 0;  // of forward and backward
  // Bytes to and from the device, for layers that work and for updates, which
  // come when all layers are through.
  int64_t in = 0, out = 0;
  int64_t updates_in = 0, updates_out = 0;
  // Bytes that the host's memory moves for its updates.
  double host = 0;
};

// Of a program of a step, but for its FLOPs.
StepLoad LoadOf(const Program& program, const ParamStore& store,
                const StepMemory& memory);

struct LaneSeconds {
  double compute = 0, in = 0, out = 0, host = 0;  // each by itself
  // Of a step: copies for layers hide under these and those for updates do not,
  // while the host's updates hide under the next forward, a third of compute.
  double step = 0;
};
LaneSeconds SecondsOf(const StepLoad& load, const offload::StepRates& rates);

// Which takes longest: "compute", "the bus to the device", "the bus to the
// host", "the host's memory".
std::string BoundBy(const LaneSeconds& seconds);

}  // namespace delink
