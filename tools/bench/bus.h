// The bandwidth between the host and a device: each direction alone, and both
// at once.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "offload/rates/machine_rates.h"
#include "tools/bench/target.h"

namespace delink::bench {

struct BusOptions {
  int64_t bytes = 0;     // of each of the two blocks on each side
  double seconds = 0.1;  // of a sample
  int64_t samples = 5;   // the result is their median
};

struct BusMeasure {
  offload::BusRates pinned, pageable;
  bool pinned_memory = false;  // false: on the CPU, or the driver refused
};

// Copies random data with the device's own copies; each direction has its own
// stream and thread. `pinned` uses a HostArena's memory. On the CPU this is
// ordinary memory in huge pages, and the processor copies. An error if there is
// not enough memory.
absl::StatusOr<BusMeasure> MeasureBus(Target& target,
                                      const BusOptions& options);

}  // namespace delink::bench
