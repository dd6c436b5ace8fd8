// Weights that are host-resident or sharded: passes forward read copies of them
// alone, of which the device has as many as are planned, and have the bits of
// those with all on the device.
#include "offload/inference/streamed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "tests/framework/module/counting_device.h"
#include "tests/recipes/saved/streamed_model.h"

namespace delink::testing::streamed_weights_test {
namespace {

// Notes what is taken, and brings what lies in one of `homes` with its signs
// turned.
class TurningDevice final : public CountingDevice {
 public:
  MemoryLedger ledger;
  std::vector<std::pair<const char*, int64_t>> homes;  // and bytes
  std::atomic<int64_t> brought = 0;                    // of them, in bytes

  absl::StatusOr<void*> Allocate(int64_t bytes,
                                 std::string_view what) override {
    absl::StatusOr<void*> memory = CountingDevice::Allocate(bytes, what);
    if (memory.ok()) ledger.Take(*memory, bytes, what);
    return memory;
  }
  void Free(void* address, int64_t bytes) override {
    ledger.Give(address);
    CountingDevice::Free(address, bytes);
  }
  void CopyFromHost(Stream& stream, void* device, const void* host,
                    int64_t bytes) override {
    CountingDevice::CopyFromHost(stream, device, host, bytes);
    const auto* const from = static_cast<const char*>(host);
    for (const auto& [home, size] : homes) {
      if (from < home || from >= home + size) continue;
      Turn(device, bytes);
      brought += bytes;
    }
  }
  // On the CPU both are the host's memory.
  static void Turn(void* values, int64_t bytes) {
    auto* const x = static_cast<float*>(values);
    for (int64_t i = 0; i < bytes / SizeOf(DType::kF32); ++i) x[i] = -x[i];
  }
};

int64_t MostOf(const MemoryLedger& ledger, const std::string& kind) {
  for (const MemoryLedger::Entry& entry : ledger.entries()) {
    if (entry.kind == kind) return entry.highest;
  }
  return 0;
}

bool IsOnHost(const ParamStore& store, int slab) {
  return store.placement(slab).weight.tier == Tier::kHost;
}

bool IsCopied(const ParamStore& store, int slab) {
  return IsOnHost(store, slab) || store.placement(slab).weight.sharded;
}

// At home the weights are others: who reads them there gets nonsense.
void TurnHomes(ParamStore& store, TurningDevice& device) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    if (!IsOnHost(store, slab)) continue;
    char* const home = static_cast<char*>(store.home(slab, Plane::kWeight));
    const int64_t bytes = store.bytes(slab, Plane::kWeight);
    TurningDevice::Turn(home, bytes);
    device.homes.emplace_back(home, bytes);
  }
}

// Of slabs with as many elements, each of another layer, two where there are
// two.
int64_t PlannedBytes(const ParamStore& store) {
  std::map<int64_t, int64_t> slabs;  // by elements
  int64_t bytes = 0;
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    if (!IsCopied(store, slab) || ++slabs[store.slab(slab).elements] > 2) {
      continue;
    }
    bytes += AlignUp(store.whole_bytes(slab, Plane::kWeight));
  }
  return bytes;
}

void ExpectAll(StreamedModel& model, TurningDevice& device,
               const std::vector<double>& expected) {
  const ParamStore& store = model.store();
  TurnHomes(model.store(), device);
  EXPECT_EQ(model.All(), expected);
  // Once more: nothing of the first time is left.
  EXPECT_EQ(model.All(), expected);
  EXPECT_EQ(MostOf(device.ledger, "weights"), store.bytes(Plane::kWeight));
  EXPECT_EQ(MostOf(device.ledger, "fetched planes"), PlannedBytes(store));
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    EXPECT_EQ(store.now(slab, Plane::kWeight),
              store.home(slab, Plane::kWeight));
  }
}

class StreamedWeightsTest
    : public ::testing::TestWithParam<
          std::tuple<bool, bool, const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    All, StreamedWeightsTest,
    ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                       ::testing::Values("none", "all", "cycle:2",
                                         "attention=all,mlp=none"),
                       ::testing::ValuesIn(kHomes)));

TEST_P(StreamedWeightsTest, HaveTheBitsOfThoseOnTheDevice) {
  const auto& [llama, tied, share, homes] = GetParam();
  StreamedOptions options{.llama = llama, .tied = tied, .share = share};
  TurningDevice plain, device;
  const std::vector<double> resident =
      (*StreamedModel::Create(plain, options))->All();
  options.homes = HomesOf(homes);
  ExpectAll(**StreamedModel::Create(device, options), device, resident);
  const absl::Status status = RunRanks(3, [&](Communicator& world) {
    TurningDevice of_rank;
    DELINK_ASSIGN_OR_RETURN(const auto sharded,
                            StreamedModel::Create(of_rank, options, &world));
    ExpectAll(*sharded, of_rank, resident);
    EXPECT_TRUE(sharded->ranks()->status().ok());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

int64_t WeightsIn(const MemoryLedger& ledger) {
  return MostOf(ledger, "weights") + MostOf(ledger, "fetched planes");
}

// Of five blocks two are there at a time.
TEST(StreamedWeights, TakeLessOfTheDeviceThanTheModelHas) {
  TurningDevice plain, device;
  (*StreamedModel::Create(plain, {}))->All();
  (*StreamedModel::Create(device, {.homes = HomesOf("blocks")}))->All();
  const int64_t all = WeightsIn(plain.ledger);
  EXPECT_LT(WeightsIn(device.ledger), all - all / 3);
  EXPECT_LT(device.ledger.highest(), plain.ledger.highest() - all / 3);
}

// Of a slab that is never displaced one copy is made, of others one a pass.
TEST(StreamedWeights, WhatStaysIsBroughtOnce) {
  TurningDevice device;
  const auto model =
      *StreamedModel::Create(device, {.tied = true, .homes = HomesOf("parts")});
  const ParamStore& store = model->store();
  TurnHomes(model->store(), device);
  model->Losses();
  EXPECT_EQ(device.brought, store.bytes(Plane::kWeight, Tier::kHost));
  TurningDevice other;
  const auto blocks =
      *StreamedModel::Create(other, {.homes = HomesOf("blocks")});
  TurnHomes(blocks->store(), other);
  blocks->Losses();
  // Two passes, and what the next one would begin with.
  const int64_t of_blocks = blocks->store().bytes(Plane::kWeight, Tier::kHost);
  EXPECT_GE(other.brought, 2 * of_blocks);
  EXPECT_LE(other.brought, 2 * of_blocks + of_blocks * 2 / 5);
}

// Of two copies one is at work, and the other comes; a gather beside the work.
TEST(StreamedWeights, TheNextLayersComeBeforeTheirTurn) {
  for (const int ranks : {1, 3}) {
    const absl::Status status = RunRanks(ranks, [&](Communicator& world) {
      TurningDevice device;
      DELINK_ASSIGN_OR_RETURN(
          const auto model,
          StreamedModel::Create(device, {.homes = HomesOf("blocks")}, &world));
      ParamStore& store = model->store();
      TurnHomes(store, device);
      const int64_t block = store.bytes(Plane::kWeight, Tier::kHost) / 5;
      const auto stream = device.NewStream("compute");
      const auto weights =
          *StreamedWeights::Create(store, model->ranks()->gathers());
      // Embedding, five blocks, head; and on.
      const std::vector<int64_t> brought = {2, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9};
      for (size_t turn = 0; turn < brought.size(); ++turn) {
        for (int call = 0; call < 2; ++call) {
          weights->Bring(turn % 7, *stream);
          const int64_t bytes = brought[turn] * block;
          for (int i = 0; ranks > 1 && device.brought < bytes && i < 5000;
               ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          if (device.brought == bytes) continue;
          return absl::InternalError(
              absl::StrCat("turn ", turn, ": ", device.brought.load()));
        }
      }
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(StreamedWeights, SaysWhatTheDeviceHasTooLittleFor) {
  class FullDevice final : public CountingDevice {
   public:
    absl::StatusOr<void*> Allocate(int64_t bytes,
                                   std::string_view what) override {
      if (what != "fetched planes") {
        return CountingDevice::Allocate(bytes, what);
      }
      return absl::ResourceExhaustedError("no room for fetched planes");
    }
  } device;
  const auto model = *StreamedModel::Create(device, {.homes = HomesOf("all")});
  const absl::Status status =
      ForwardPass::Create(model->model(), model->store(),
                          {.batch = {.micro_batch = 1, .seq = 4}})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace delink::testing::streamed_weights_test
