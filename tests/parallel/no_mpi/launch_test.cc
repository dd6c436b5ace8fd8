// A build without MPI: one process, and a refusal to pass for several.
#include "parallel/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace delink::launch_test {
namespace {

using ::testing::HasSubstr;

TEST(NoMpiLaunchTest, IsOneProcess) {
  const auto world = StartWorld(nullptr, nullptr);
  ASSERT_TRUE(world.ok()) << world.status();
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->local_size(), 1);
}

TEST(NoMpiLaunchTest, RefusesToBeOneOfSeveral) {
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  const auto world = StartWorld(nullptr, nullptr);
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(world.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(world.status().message());
  EXPECT_THAT(message, HasSubstr("announces 4 ranks (OMPI_COMM_WORLD_SIZE)"));
  EXPECT_THAT(message, HasSubstr("built without MPI"));
}

}  // namespace
}  // namespace delink::launch_test
