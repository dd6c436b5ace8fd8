// What visits are told of themselves on a CUDA device, in any legal order of
// its streams. Built twice: for the device of this build, skipped where there
// is none, and for the emulated one.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/recipes/run/stream_orders.h"
#include "tests/recipes/run/visit_notes.h"

namespace delink::testing::cuda_visit_inputs_test {
namespace {

TEST(CudaVisitInputs, AreTrueWhateverTheOrderOfStreams) {
  if (const absl::Status status = HaveCuda(); !status.ok()) {
    GTEST_SKIP() << status;
  }
  const RigOptions options = {.device = DeviceKind::kCuda};
  RigOptions by_layer = options;
  by_layer.order = MicroBatchOrder::kLayerMajor;
  for (const NotedCase& of : {
           NotedCase{.options = options},
           NotedCase{.options = options, .again = {0, 2}},
           NotedCase{.options = by_layer, .again = {1, 3}, .stores = true},
       }) {
    SCOPED_TRACE(::testing::PrintToString(of));
    for (const uint64_t seed : {1, 2}) {
      InOrder(seed, [&] { ExpectVisitsToldTruly(of); });
    }
  }
}

}  // namespace
}  // namespace delink::testing::cuda_visit_inputs_test
