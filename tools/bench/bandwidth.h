// How fast memory streams.
#pragma once

#include "offload/rates/machine_rates.h"
#include "tools/bench/machine.h"

namespace delink::bench {

// Over arrays of `bytes` each, of which every thread takes a piece; the best of
// `passes`.
Bandwidth MeasureBandwidth(int threads, int64_t bytes, int passes);

// Over arrays of about `bytes` each in a HostArena, as what is offloaded has
// it; the medians of `passes`, of numbers that are not all the same. An error
// where there is not enough memory.
absl::StatusOr<offload::HostMemoryRates> MeasureHostMemory(int threads,
                                                           int64_t bytes,
                                                           int passes);

// Of the target's memory, by its own copies from one array to another; the best
// of `passes`. An error where there is not enough memory.
absl::StatusOr<Bandwidth> MeasureCopy(Target& target, int64_t bytes,
                                      int passes);

}  // namespace delink::bench
