#include "tests/recipes/run/stream_orders.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing {

absl::Status HaveCuda() { return absl::OkStatus(); }

void InOrder(uint64_t seed, const std::function<void()>& run) {
  const simt::ScopedOptions order({.seed = seed});
  run();
}

}  // namespace delink::testing
