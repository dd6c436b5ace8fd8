// Where a CUDA device is looked at: the one of this build, or the emulated one,
// which can be told in what order to do what it may do in any.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace delink::testing {

// Why there is no CUDA device, or OK.
absl::Status HaveCuda();

// Calls `run`; the emulated device draws its legal orders from `seed`, a real
// one takes its own.
void InOrder(uint64_t seed, const std::function<void()>& run);

}  // namespace delink::testing
