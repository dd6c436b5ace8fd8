// Ranks that work on the same visits and are processes: run under mpirun with
// two or four.
#include <gtest/gtest.h>

#include <vector>

#include "tests/recipes/run/tensor_steps.h"
#include "tests/testing/mpi_main.h"

namespace delink::testing::tensor_mpi_test {
namespace {

TEST(TensorMpiTest, StepsAreThoseOfOneRank) {
  Communicator& world = TestWorld().comm();
  const std::vector<TensorCase> cases = {
      {.tensor = 2},
      {.tensor = 2,
       .sequence = false,
       .kind = "llama",
       .options = {.recompute = true, .lane_threads = true}},
      {.context = 2, .kind = "llama", .options = {.masked = true}},
      {.tensor = 4, .kind = "llama", .options = {.muon = true}},
      {.tensor = 2, .data = 2, .options = {.zero = 3}},
      {.tensor = 2, .pipeline = 2, .options = {.lane_threads = true}},
      {.tensor = 2, .pipeline = 2, .kind = "llama", .share = "all"},
      {.tensor = 2, .context = 2, .options = {.dropout = 0.1}},
      {.context = 2, .pipeline = 2, .options = {.tied = false, .halves = true}},
  };
  for (const TensorCase& of : cases) {
    if (of.ranks() != world.size()) continue;
    SCOPED_TRACE(::testing::PrintToString(of));
    ExpectStepsOfOneRank(world, of, RunAlone(of));
  }
}

}  // namespace
}  // namespace delink::testing::tensor_mpi_test
