// Checkpoints of stores whose planes are at home on the host: values go there
// and come from there, and the device gives no memory for it.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::homes_test {
namespace {

constexpr int kBlocks = 3;
constexpr int64_t kWidth = 37;

struct Toy {
  Toy(Device& device, const SlabTiers& tiers, DType dtype, MasterForm master) {
    testing::DeclareToy(registry, kBlocks, kWidth);
    Layout layout = Layout::Create(registry, kBlocks, {}, {});
    layout =
        layout.WithTiers(std::vector<SlabTiers>(layout.slabs().size(), tiers));
    store = *ParamStore::Create(device, std::move(layout), 0,
                                {.dtype = dtype, .master = master});
  }
  void Fill() {
    store->InitWeights(1);
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      for (const Plane plane : {Plane::kState0, Plane::kState1}) {
        const auto slab = static_cast<int>(s);
        testing::Write<float>(*store, slab, plane, [=](int64_t i) {
          return static_cast<float>(testing::ToyValue(slab, plane, i));
        });
      }
    }
  }
  // What weights and state have, plane by plane, wherever it is.
  std::vector<std::vector<char>> All() const {
    const auto stream = store->device().NewStream();
    std::vector<std::vector<char>> all;
    for (int p = 0; p < kPlanes; ++p) {
      const auto plane = static_cast<Plane>(p);
      if (!store->has(plane) || plane == Plane::kGradient) continue;
      for (size_t s = 0; s < store->slabs().size(); ++s) {
        const auto slab = static_cast<int>(s);
        const int64_t bytes = store->bytes(slab, plane);
        std::vector<char>& values = all.emplace_back(bytes);
        store->device().CopyToHost(*stream, values.data(),
                                   store->home(slab, plane), bytes);
        stream->Synchronize();
      }
    }
    return all;
  }

  ParamRegistry registry;
  std::unique_ptr<ParamStore> store;
};

TEST(CheckpointHomesTest, NeitherTakesMemoryOfTheDevice) {
  const testing::TempDir dir;
  SelfCommunicator comm;
  const SlabTiers host{
      .weight = Tier::kHost, .gradient = Tier::kHost, .state = Tier::kHost};
  for (const auto& [dtype, master] : std::vector<std::pair<DType, MasterForm>>{
           {DType::kF32, MasterForm::kWhole},
           {DType::kBF16, MasterForm::kWhole},
           {DType::kBF16, MasterForm::kSplit}}) {
    const auto device = NewCpuDevice(), other = NewCpuDevice();
    Toy from(*device, host, dtype, master);
    from.Fill();
    EXPECT_EQ(device->bytes_in_use(), 0);
    const auto saved =
        WriteCheckpoint(comm, dir / "run", {.step = 1}, *from.store, {}, 0);
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(device->allocations(), 0);
    Toy to(*device, host, dtype, master), resident(*other, {}, dtype, master);
    const int64_t before = other->allocations();
    for (Toy* const toy : {&to, &resident}) {
      const absl::Status status = LoadCheckpoint(comm, *saved, *toy->store);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(toy->All(), from.All());
    }
    EXPECT_EQ(device->allocations(), 0);
    EXPECT_EQ(other->allocations(), before);
  }
}

}  // namespace
}  // namespace delink::homes_test
