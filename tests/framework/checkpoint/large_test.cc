// A tensor larger than what is written and read at a time.
#include <gtest/gtest.h>

#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::large_test {
namespace {

using testing::MakeStore;
using testing::Read;

constexpr Plane kSaved[] = {Plane::kWeight, Plane::kState0, Plane::kState1};

// Another number for every element and plane.
void Fill(const ParamStore& store) {
  for (const Plane plane : kSaved) {
    testing::Write<float>(store, 0, plane, [plane](int64_t i) {
      return static_cast<float>(3 * i + static_cast<int>(plane));
    });
  }
}

TEST(LargeCheckpointTest, ComesBackWhole) {
  ParamRegistry registry;
  Scope(registry).Layer(0, "embed").Param("weight", {.shape = {2053, 1024}});
  const auto device = NewCpuDevice();
  const testing::TempDir dir;
  SelfCommunicator self;
  const auto saved = MakeStore(*device, registry, 0, {});
  Fill(*saved);
  const auto path =
      WriteCheckpoint(self, dir.path(), {.step = 1}, *saved, {}, 0);
  ASSERT_TRUE(path.ok()) << path.status();
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    const auto loaded = MakeStore(*device, registry, 0, {}, 1,
                                  {.rank = comm.rank(), .ranks = 2});
    const absl::Status load = LoadCheckpoint(comm, *path, *loaded);
    for (const Plane plane : kSaved) {
      const Range held = loaded->held(0, plane);
      const std::vector<float> all = Read<float>(*saved, 0, plane);
      // Not with EXPECT_EQ, which would print two million numbers.
      EXPECT_TRUE(
          Read<float>(*loaded, 0, plane) ==
          std::vector<float>(all.begin() + held.begin, all.begin() + held.end));
    }
    return load;
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace delink::large_test
