// How fast bytes go between the host and a device, each way and both ways at
// once.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "offload/rates/machine_rates.h"
#include "tools/bench/target.h"

namespace delink::bench {

struct BusOptions {
  int64_t bytes = 0;     // of each of the two blocks on each side
  double seconds = 0.1;  // of a sample
  int64_t samples = 5;   // of which the medians are taken
};

struct BusMeasure {
  offload::BusRates pinned, pageable;
  bool pinned_memory = false;  // or else the driver refused it
};

// With random data, by the device's own copies, each direction on a stream and
// a thread of its own. Pinned is a HostArena's memory: on the CPU, whose
// copies are the processor's, ordinary memory in huge pages. An error where
// there is not enough memory.
absl::StatusOr<BusMeasure> MeasureBus(Target& target,
                                      const BusOptions& options);

}  // namespace delink::bench
