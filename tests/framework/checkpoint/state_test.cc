// Checkpoints between all the ways to keep masters and moments: what is stored
// is f32, so that one that goes on as it was has every bit, and every other
// takes what it has room for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
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

namespace delink::state_test {
namespace {

using testing::FactoredStates;
using ::testing::HasSubstr;
using testing::MomentsIn;

constexpr int kBlocks = 2;
constexpr int64_t kWidth = 37;

struct Way {
  testing::StoreOptions options;
  int zero = 1;
};

// A store and the registry that it stands on.
struct Rank {
  Rank(Device& device, Communicator& comm, const Way& way) {
    testing::DeclareToy(registry, kBlocks, kWidth);
    testing::StoreOptions options = way.options;
    options.rank = comm.rank();
    options.ranks = comm.size();
    store =
        testing::MakeStore(device, registry, kBlocks, {}, way.zero, options);
  }

  // Weights and state that are a function of names alone.
  void Fill() {
    store->InitWeights(3);
    const auto stream = store->device().NewStream();
    ForEach([&](int slab, int state, size_t param) {
      const Range held = store->state(slab, state, param).held;
      const RngKey key = Fold(Fold(KeyFromSeed(1), static_cast<uint64_t>(slab)),
                              static_cast<uint64_t>(state) * 100 + param);
      std::vector<float> values;
      for (int64_t i = held.begin; i < held.end; ++i) {
        const double x = Normal(key, static_cast<uint64_t>(i));
        const double size = x * std::exp(3 * x);
        values.push_back(static_cast<float>(state == 0 ? size : size * size));
      }
      testing::WriteState(*store, *stream, slab, state, param, held,
                          values.data());
    });
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      store->updates()[s] = 100 + static_cast<int64_t>(s);
    }
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      for (size_t k = 0; k < store->states().size(); ++k) {
        for (size_t p = 0; p < store->slabs()[s].params.size(); ++p) {
          visit(static_cast<int>(s), static_cast<int>(k), p);
        }
      }
    }
  }

  std::vector<float> Values(int slab, int state, size_t param,
                            Range range) const {
    std::vector<float> values(static_cast<size_t>(range.size()));
    const auto stream = store->device().NewStream();
    testing::ReadState(*store, *stream, slab, state, param, range,
                       values.data());
    return values;
  }

  // What it holds of the parameters themselves.
  std::vector<float> Parameters(int slab, Range range) const {
    std::vector<float> values(static_cast<size_t>(range.size()));
    const auto stream = store->device().NewStream();
    testing::ReadParameters(*store, *stream, slab, range.begin, range.size(),
                            values.data());
    return values;
  }

  std::vector<uint16_t> Weights(int slab) const {
    std::vector<uint16_t> bits;
    for (const BFloat16 w :
         testing::Read<BFloat16>(*store, slab, Plane::kWeight)) {
      bits.push_back(w.bits);
    }
    return bits;
  }

  ParamRegistry registry;
  std::unique_ptr<ParamStore> store;
};

class StateTest : public ::testing::Test {
 protected:
  std::string Saved(int ranks, const Way& way, const std::string& folder) {
    std::string path;
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      Rank rank(*device_, comm, way);
      rank.Fill();
      DELINK_ASSIGN_OR_RETURN(
          const std::string written,
          WriteCheckpoint(comm, folder, {.step = 1}, *rank.store, {}, 0));
      if (comm.rank() == 0) path = written;
      return VerifyCheckpoint(comm, written);
    });
    EXPECT_TRUE(status.ok()) << status;
    return path;
  }

  // Of weights that are f32.
  static std::vector<uint16_t> RoundedOf(const Rank& whole, int slab) {
    std::vector<uint16_t> bits;
    for (const float w :
         testing::Read<float>(*whole.store, slab, Plane::kWeight)) {
      bits.push_back(BFloat16(w).bits);
    }
    return bits;
  }

  // What a rank holds is its part of what `whole`, in f32, has.
  static void ExpectHolds(const Rank& rank, const Rank& whole) {
    const ParamStore& store = *rank.store;
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const bool f32 = store.options().dtype == DType::kF32;
      const Range own = store.held(slab, f32 ? Plane::kWeight : Plane::kMaster);
      EXPECT_EQ(rank.Parameters(slab, own), whole.Parameters(slab, own));
      if (store.has(Plane::kMaster)) {
        EXPECT_EQ(rank.Weights(slab), RoundedOf(whole, slab));
      }
      EXPECT_EQ(store.updates()[s], whole.store->updates()[s]);
    }
    rank.ForEach([&](int slab, int state, size_t param) {
      const Range held = store.state(slab, state, param).held;
      EXPECT_EQ(rank.Values(slab, state, param, held),
                whole.Values(slab, state, param, held));
    });
  }

  const testing::TempDir dir_;
  std::unique_ptr<Device> device_ = NewCpuDevice();
  SelfCommunicator self_;
};

TEST_F(StateTest, ComesBackToTheBitOnAnyNumberOfRanks) {
  const Way ways[] = {
      {{.states = MomentsIn(StateStorage::kBF16)}},
      {{.states = MomentsIn(StateStorage::kBlock8)}},
      {{.states = MomentsIn(StateStorage::kBlock8),
        .whole_tensors = WholeTensors::kHidden}},
      {{.states = FactoredStates(), .whole_tensors = WholeTensors::kAll}},
      {{.states = {}}}};
  for (const Way& way : ways) {
    Rank whole(*device_, self_, way);
    whole.Fill();
    for (const auto& [writers, readers] :
         {std::pair{1, 3}, std::pair{2, 1}, std::pair{3, 2}}) {
      const testing::TempDir dir;
      const std::string path = Saved(writers, way, dir.path());
      const absl::Status status = RunRanks(readers, [&](Communicator& comm) {
        Rank rank(*device_, comm, way);
        DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, path, *rank.store));
        rank.ForEach([&](int slab, int state, size_t param) {
          const Range held = rank.store->state(slab, state, param).held;
          EXPECT_EQ(rank.Values(slab, state, param, held),
                    whole.Values(slab, state, param, held));
        });
        EXPECT_EQ(rank.store->updates(), whole.store->updates());
        return absl::OkStatus();
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

// What f32 moments have 8-bit ones take, and give back what they made of it.
TEST_F(StateTest, StorageMayChange) {
  const std::string exact =
      Saved(1, {{.states = MomentsIn(StateStorage::kExact)}}, dir_.path());
  Rank small(*device_, self_, {{.states = MomentsIn(StateStorage::kBlock8)}});
  ASSERT_TRUE(LoadCheckpoint(self_, exact, *small.store).ok());
  Rank expected(*device_, self_,
                {{.states = MomentsIn(StateStorage::kBlock8)}});
  expected.Fill();
  small.ForEach([&](int slab, int state, size_t param) {
    const Range held = small.store->state(slab, state, param).held;
    EXPECT_EQ(small.Values(slab, state, param, held),
              expected.Values(slab, state, param, held));
  });
}

TEST_F(StateTest, TheProgramThatWroteItIsToldWhereItIsKnown) {
  Rank rank(*device_, self_, {});
  const auto program = [&](const CheckpointHeader& header) {
    const std::string path =
        *WriteCheckpoint(self_, dir_.path(), header, *rank.store, {}, 0);
    return ReadHeader(path)->program;
  };
  EXPECT_EQ(program({.step = 1, .program = "delink 9.9"}), "delink 9.9");
  EXPECT_EQ(program({.step = 2}), "");  // as early builds wrote them
}

TEST_F(StateTest, MissingStateIsAnError) {
  const std::string path = Saved(1, {{.states = {{.name = "m"}}}}, dir_.path());
  Rank rank(*device_, self_, {});
  const absl::Status status = LoadCheckpoint(self_, path, *rank.store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/v"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--init"));
  EXPECT_TRUE(LoadWeights(self_, path, *rank.store).ok());
}

// Weights in f32 and masters in all forms are the same numbers, and read each
// other's files, on any number of ranks; so do weights alone, which are those
// rounded.
TEST_F(StateTest, PrecisionsReadEachOthersFiles) {
  const Way ways[] = {{},
                      {{.dtype = DType::kBF16}},
                      {{.dtype = DType::kBF16, .master = MasterForm::kSplit}}};
  Rank expected(*device_, self_, {});
  expected.Fill();
  for (const Way& before : ways) {
    for (const int writers : {1, 2}) {
      const testing::TempDir dir;
      const std::string path = Saved(writers, before, dir.path());
      for (const Way& after : ways) {
        const absl::Status status = RunRanks(3, [&](Communicator& comm) {
          Rank rank(*device_, comm, after);
          DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, path, *rank.store));
          ExpectHolds(rank, expected);
          return absl::OkStatus();
        });
        EXPECT_TRUE(status.ok()) << status;
      }
      Rank rounded(*device_, self_,
                   {{.dtype = DType::kBF16,
                     .gradients = false,
                     .states = {},
                     .master = MasterForm::kNone}});
      const absl::Status status = LoadWeights(self_, path, *rounded.store);
      EXPECT_TRUE(status.ok()) << status;
      for (size_t s = 0; s < rounded.store->slabs().size(); ++s) {
        const int slab = static_cast<int>(s);
        EXPECT_EQ(rounded.Weights(slab), RoundedOf(expected, slab));
      }
    }
  }
}

// Without a master the weights are what is saved, and come back as they were.
TEST_F(StateTest, WeightsWithoutAMaster) {
  const Way none{{.dtype = DType::kBF16, .master = MasterForm::kNone}};
  const std::string path = Saved(2, none, dir_.path());
  Rank before(*device_, self_, none), after(*device_, self_, none);
  before.Fill();
  ASSERT_TRUE(LoadCheckpoint(self_, path, *after.store).ok());
  for (size_t s = 0; s < after.store->slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    EXPECT_EQ(after.Weights(slab), before.Weights(slab));
  }
}

}  // namespace
}  // namespace delink::state_test
