// Checkpoints of stages that visit some blocks of a model: they hold those, and
// say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/layout.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::visited_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Read;

constexpr int kBlocks = 5;
constexpr int64_t kWidth = 19;

class VisitedCheckpointTest : public ::testing::Test {
 protected:
  VisitedCheckpointTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  std::unique_ptr<ParamStore> Store(const SharingMap& map, int rank,
                                    int ranks) {
    return testing::MakeStore(*device_, registry_, kBlocks, map, /*zero=*/1,
                              {.rank = rank, .ranks = ranks});
  }

  // Every plane of it a function of the slab.
  std::string Saved(int ranks, const SharingMap& map) {
    std::string path;
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      const auto store = Store(map, comm.rank(), ranks);
      store->InitWeights(7);
      for (size_t s = 0; s < store->slabs().size(); ++s) {
        for (const Plane plane : {Plane::kState0, Plane::kState1}) {
          const int slab = static_cast<int>(s);
          testing::Write<float>(*store, slab, plane, [&](int64_t i) {
            return static_cast<float>(testing::ToyValue(slab, plane, i));
          });
        }
        store->updates()[s] = 10 + static_cast<int64_t>(s);
      }
      DELINK_ASSIGN_OR_RETURN(
          const std::string written,
          WriteCheckpoint(comm, dir_.path(), {.step = 1}, *store, {}, 0));
      if (comm.rank() == 0) path = written;
      return VerifyCheckpoint(comm, written);
    });
    EXPECT_TRUE(status.ok()) << status;
    return path;
  }

  void Remove(const std::string& path, const std::string& tensor) {
    auto index = hdf5::File::OpenReadWrite(path + "/index.h5");
    ASSERT_TRUE(index.ok());
    ASSERT_TRUE(index->Remove("/model/" + tensor).ok());
    ASSERT_TRUE(index->Close().ok());
  }

  SharingMap map_{.visited = {1, 3, 4},
                  .leaders = {{"mlp", {-1, 1, -1, 3, 1}}}};
  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  testing::TempDir dir_;
};

TEST_F(VisitedCheckpointTest, HoldVisitedBlocksAlone) {
  const std::string path = Saved(2, map_);
  const auto tensors = ListTensors(path);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  std::vector<std::string> matrices;
  for (const TensorInfo& tensor : *tensors) {
    if (tensor.name.ends_with("mlp/up")) {
      matrices.push_back(tensor.name + ">" + tensor.link);
    }
  }
  EXPECT_THAT(matrices, ElementsAre("blocks/1/mlp/up>", "blocks/3/mlp/up>",
                                    "blocks/4/mlp/up>blocks/1/mlp/up"));
  EXPECT_EQ(tensors->size(), 3u + 3 * 5);
}

TEST_F(VisitedCheckpointTest, ReadAsTheyWereWritten) {
  const std::string path = Saved(2, map_);
  const auto sharing = ReadSharing(path, registry_, kBlocks);
  ASSERT_TRUE(sharing.ok()) << sharing.status();
  EXPECT_EQ(sharing->visited, map_.visited);
  for (const char* part : {"attention", "mlp", "norm"}) {
    for (const int block : map_.visited) {
      EXPECT_EQ(sharing->Leader(part, block), map_.Leader(part, block)) << part;
    }
  }
  SelfCommunicator comm;
  const auto store = Store(*sharing, 0, 1);
  ASSERT_TRUE(LoadCheckpoint(comm, path, *store).ok());
  const auto fresh = Store(map_, 0, 1);
  fresh->InitWeights(7);
  ASSERT_EQ(store->slabs().size(), fresh->slabs().size());
  for (size_t s = 0; s < store->slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    EXPECT_EQ(store->slabs()[s].name, fresh->slabs()[s].name);
    EXPECT_EQ(Read<float>(*store, slab, Plane::kWeight),
              Read<float>(*fresh, slab, Plane::kWeight));
    const SlabParam& last = store->slabs()[s].params.back();
    const float* const moment =
        static_cast<const float*>(store->at(slab, Plane::kState1, last.offset));
    EXPECT_EQ(*moment, static_cast<float>(testing::ToyValue(
                           slab, Plane::kState1, last.offset)));
    EXPECT_EQ(store->updates()[s], 10 + static_cast<int64_t>(s));
  }
}

TEST_F(VisitedCheckpointTest, OfAllBlocksTheMapListsNone) {
  SharingMap map;
  map.visited = {0, 1, 2, 3, 4};
  const auto sharing = ReadSharing(Saved(1, map), registry_, kBlocks);
  ASSERT_TRUE(sharing.ok()) << sharing.status();
  EXPECT_TRUE(sharing->visited.empty());
}

TEST_F(VisitedCheckpointTest, WhatIsMissingIsDamage) {
  const struct {
    std::vector<const char*> removed;
    const char* says;
  } rows[] = {
      {{"blocks/3/attn/out/weight"}, "has no blocks/3/attn/out/weight"},
      {{"blocks/1", "blocks/3", "blocks/4"}, "has no blocks/0/"},
      {{"blocks/1"}, ""},  // to which block 4 is a link
  };
  for (const auto& row : rows) {
    const std::string path = Saved(1, map_);
    for (const char* const name : row.removed) Remove(path, name);
    const absl::Status status = ReadSharing(path, registry_, kBlocks).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.says));
  }
}

}  // namespace
}  // namespace delink::visited_test
