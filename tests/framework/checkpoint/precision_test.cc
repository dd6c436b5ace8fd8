// Checkpoints between precisions: what is stored is f32, and comes back to the
// bit wherever there is room for it.
#include <gtest/gtest.h>

#include <vector>

#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::precision_test {
namespace {

using testing::MakeStore;
using testing::Read;

constexpr int kBlocks = 2;
constexpr int64_t kWidth = 37;

float Value(int slab, Plane plane, int64_t i) {
  return static_cast<float>(testing::ToyValue(slab, plane, i));
}

// Parameters and state that tell slabs, planes and elements apart; padding
// stays zero.
void Fill(ParamStore& store) {
  const auto stream = store.device().NewStream();
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    for (const SlabParam& param : store.slabs()[s].params) {
      std::vector<float> values;
      for (int64_t i = 0; i < param.elements; ++i) {
        values.push_back(Value(slab, Plane::kWeight, param.offset + i));
      }
      testing::SetParameters(store, *stream, slab, param.offset, param.elements,
                             values.data());
    }
    for (const Plane plane : {Plane::kState0, Plane::kState1}) {
      testing::Write<float>(store, slab, plane,
                            [=](int64_t i) { return Value(slab, plane, i); });
    }
    store.updates()[s] = 100 + static_cast<int64_t>(s);
  }
}

// What this rank holds must be its part of what `whole`, in f32, has.
void ExpectHolds(const ParamStore& whole, const ParamStore& store) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    const auto part = [&](Plane plane, Plane of) {
      const std::vector<float> all = Read<float>(whole, slab, plane);
      const Range held = store.held(slab, of);
      return std::vector<float>(all.begin() + held.begin,
                                all.begin() + held.end);
    };
    const std::vector<float> exact = part(Plane::kWeight, Plane::kWeight);
    if (store.options().dtype == DType::kF32) {
      EXPECT_EQ(Read<float>(store, slab, Plane::kWeight), exact);
    } else {
      const auto weight = Read<BFloat16>(store, slab, Plane::kWeight);
      for (size_t i = 0; i < weight.size(); ++i) {
        ASSERT_EQ(weight[i].bits, BFloat16(exact[i]).bits);
      }
    }
    if (store.has(Plane::kMaster)) {
      EXPECT_EQ(Read<float>(store, slab, Plane::kMaster),
                part(Plane::kWeight, Plane::kMaster));
    }
    for (const Plane plane : {Plane::kState0, Plane::kState1}) {
      if (!store.has(plane)) continue;
      EXPECT_EQ(Read<float>(store, slab, plane), part(plane, plane));
    }
    if (!store.has(Plane::kState0)) continue;
    EXPECT_EQ(store.updates()[s], whole.updates()[s]);
  }
}

class PrecisionTest
    : public ::testing::TestWithParam<std::tuple<DType, DType>> {
 protected:
  static DType before() { return std::get<0>(GetParam()); }
  static DType after() { return std::get<1>(GetParam()); }

  static std::unique_ptr<ParamStore> Store(
      Device& device, ParamRegistry& registry, int zero,
      const testing::StoreOptions& options) {
    testing::DeclareToy(registry, kBlocks, kWidth);
    return MakeStore(device, registry, kBlocks, {}, zero, options);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Types, PrecisionTest,
    ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                       ::testing::Values(DType::kF32, DType::kBF16)));

TEST_P(PrecisionTest, NothingIsLostOnAnyNumberOfRanks) {
  const auto device = NewCpuDevice();
  ParamRegistry registry;
  const auto expected = Store(*device, registry, 0, {});
  Fill(*expected);
  for (const int writers : {1, 2}) {
    const testing::TempDir dir;
    std::string path;
    const absl::Status saved = RunRanks(writers, [&](Communicator& comm) {
      // Sharded, the master is no rank's alone.
      ParamRegistry own;
      const auto store =
          Store(*device, own, 1,
                {.dtype = before(), .rank = comm.rank(), .ranks = comm.size()});
      Fill(*store);
      DELINK_ASSIGN_OR_RETURN(
          const std::string written,
          WriteCheckpoint(comm, dir.path(), {.step = 1}, *store, {}, 0));
      if (comm.rank() == 0) path = written;
      return absl::OkStatus();
    });
    ASSERT_TRUE(saved.ok()) << saved;
    for (const int readers : {1, 3}) {
      const absl::Status loaded = RunRanks(readers, [&](Communicator& comm) {
        ParamRegistry own;
        const auto store = Store(
            *device, own, 1,
            {.dtype = after(), .rank = comm.rank(), .ranks = comm.size()});
        const absl::Status status = LoadCheckpoint(comm, path, *store);
        ExpectHolds(*expected, *store);
        return status;
      });
      EXPECT_TRUE(loaded.ok()) << loaded;
    }
    SelfCommunicator self;
    ParamRegistry own;
    const auto weights = Store(*device, own, 0,
                               {.dtype = after(),
                                .gradients = false,
                                .states = {},
                                .master = MasterForm::kNone});
    const absl::Status status = LoadWeights(self, path, *weights);
    EXPECT_TRUE(status.ok()) << status;
    ExpectHolds(*expected, *weights);
  }
}

}  // namespace
}  // namespace delink::precision_test
