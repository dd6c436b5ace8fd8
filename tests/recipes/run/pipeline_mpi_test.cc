// Pipelines whose ranks are processes: run under mpirun with two or four.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/recipes/run/pipeline_steps.h"
#include "tests/testing/mpi_main.h"

namespace delink::testing::pipeline_mpi_test {
namespace {

TEST(PipelineMpiTest, StepsAreThoseWithoutAPipeline) {
  Communicator& world = TestWorld().comm();
  std::vector<PipelineCase> cases = {
      {.pipeline = 2, .micro_batches = 3, .kind = "llama"},
      {.pipeline = 2, .turns = 2},
      {.pipeline = 2, .data = 2},
      {.pipeline = 2, .options = {.tied = false, .halves = true}},
      {.pipeline = 4,
       .micro_batches = 6,
       .options = {.tied = false, .halves = true}},
      {.pipeline = 4, .micro_batches = 1},
      {.pipeline = 2, .turns = 2, .data = 2},
  };
  for (PipelineCase& of : cases) {
    if (of.ranks() != world.size()) continue;
    for (const bool threads : {false, true}) {
      of.options.lane_threads = threads;
      of.options.zero = of.options.recompute = threads;
      of.options.dtype = threads ? DType::kF32 : DType::kBF16;
      SCOPED_TRACE(::testing::PrintToString(of));
      ExpectStepsAsWithout(world, of);
    }
  }
}

TEST(PipelineMpiTest, ProbesFindWhatIsFoundWithout) {
  Communicator& world = TestWorld().comm();
  for (const int data : {1, 2}) {
    if (world.size() % (2 * data) != 0) continue;
    const PipelineCase of{.pipeline = world.size() / data,
                          .data = data,
                          .share = "all",
                          .options = {.lane_threads = true}};
    SCOPED_TRACE(::testing::PrintToString(of));
    ExpectProbesAsWithout(world, of);
  }
}

}  // namespace
}  // namespace delink::testing::pipeline_mpi_test
