#include "framework/device/backend.h"
#include "tests/recipes/run/stream_orders.h"

namespace delink::testing {

absl::Status HaveCuda() { return CountCudaDevices().status(); }

void InOrder(uint64_t, const std::function<void()>& run) { run(); }

}  // namespace delink::testing
