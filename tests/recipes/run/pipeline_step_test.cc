// Pipelines whose ranks are threads: the steps are those of the same data ranks
// without a pipeline, bit for bit.
#include <gtest/gtest.h>

#include "framework/comm/thread_communicator.h"
#include "tests/recipes/run/pipeline_steps.h"

namespace delink::testing {
namespace {

TEST(PipelineStep, First) {
  const PipelineCase of;
  const absl::Status status = RunRanks(of.ranks(), [&](Communicator& world) {
    ExpectStepsAsWithout(world, of);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace delink::testing
