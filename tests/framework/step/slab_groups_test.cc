// Which ranks a slab's communicator has, on each stage of a pipeline.
#include "framework/step/groups/slab_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "framework/comm/thread_communicator.h"
#include "tests/framework/module/random_layouts.h"

namespace delink::slab_groups_test {
namespace {

using testing::Dice;
using testing::Model;

// Slabs of one stage and of several: the first sum is of two ranks or of more.
TEST(SlabGroupsTest, AreOfTheRanksThatHaveTheSlab) {
  Dice dice(1);
  for (const Mesh& mesh :
       {Mesh{.data = 2, .pipeline = 2}, Mesh{.data = 2, .pipeline = 3},
        Mesh{.pipeline = 3}}) {
    Model model;
    while (model.blocks < 4) {
      model = {};
      testing::Declare(model, dice, 3);
    }
    const Layout layout =
        Layout::Create(model.registry, model.blocks,
                       testing::AnySharing(model, dice), {.mesh = mesh});
    const absl::Status status =
        RunRanks(mesh.ranks(), [&](Communicator& world) {
          const std::unique_ptr<Device> device = NewCpuDevice();
          const std::unique_ptr<Stream> stream = device->NewStream();
          const auto store =
              ParamStore::Create(*device, layout, world.rank(), {});
          const auto groups = SlabGroups::Create(**store, *device, *stream,
                                                 world, {.stages = true});
          EXPECT_TRUE(groups.ok()) << groups.status();
          int several = 0;
          for (int s = 0; s < static_cast<int>((*store)->slabs().size()); ++s) {
            const std::vector<int>& group = *(*store)->local(s).group;
            if (group.size() == 1) continue;
            several += static_cast<int>(group.size()) > mesh.data ? 1 : 0;
            StreamCommunicator& comm = (*groups)->Of(s);
            EXPECT_EQ(At(group, (*groups)->Place(s)), world.rank());
            EXPECT_EQ(comm.size(), static_cast<int>(group.size()));
            // Where each rank is, and that all come here for the same slab.
            std::vector<int32_t> ranks(group.size(), -1);
            At(ranks, (*groups)->Place(s)) = world.rank();
            EXPECT_TRUE(
                comm.AllGather(ranks.data(), 1, DType::kI32)->Wait().ok());
            EXPECT_EQ(ranks, group);
            const int stages = static_cast<int>(group.size()) / mesh.data;
            if (stages == 1) continue;
            // One of each stage that has it, all with one data place.
            StreamCommunicator& column = (*groups)->OfMicroBatch(s);
            EXPECT_EQ(column.size(), stages);
            std::vector<int32_t> places(column.size(), -1);
            At(places, column.rank()) = world.rank() % mesh.data;
            EXPECT_TRUE(
                column.AllGather(places.data(), 1, DType::kI32)->Wait().ok());
            EXPECT_THAT(places, ::testing::Each(world.rank() % mesh.data));
          }
          const int stage = mesh.PlaceOf(world.rank())[Axis::kPipeline];
          // The embedding is the head's weight too.
          if (stage == 0 || stage + 1 == mesh.pipeline) {
            EXPECT_GT(several, 0);
          }
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace delink::slab_groups_test
