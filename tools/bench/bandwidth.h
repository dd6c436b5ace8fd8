// The bandwidth of memory.
#pragma once

#include "offload/rates/machine_rates.h"
#include "tools/bench/machine.h"

namespace delink::bench {

// Over arrays of `bytes` each, divided among the threads; the best of `passes`.
Bandwidth MeasureBandwidth(int threads, int64_t bytes, int passes);

// Over arrays of about `bytes` each in a HostArena, as offloading uses it,
// filled with different numbers; the medians of `passes`. An error if there is
// not enough memory.
absl::StatusOr<offload::HostMemoryRates> MeasureHostMemory(int threads,
                                                           int64_t bytes,
                                                           int passes);

// Of the target's memory, with the device's copies from one array to another;
// the best of `passes`. An error if there is not enough memory.
absl::StatusOr<Bandwidth> MeasureCopy(Target& target, int64_t bytes,
                                      int passes);

}  // namespace delink::bench
