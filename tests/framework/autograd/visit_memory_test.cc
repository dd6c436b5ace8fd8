#include "framework/autograd/visit_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"

namespace delink::visit_memory_test {
namespace {

// A chain of `n` pieces, each read by the next.
PhasePlan Chain(int n, int64_t bytes) {
  MeasuringMemory memory;
  memory.Begin(Phase::kForward);
  int before = -1;
  for (int i = 0; i < n; ++i) {
    const int id = memory.Take(bytes).id;
    if (before >= 0) memory.Use(before);
    before = id;
    memory.Tick();
  }
  return memory.Plan();
}

TEST(MeasuringMemory, AChainTakesTwoPieces) {
  EXPECT_EQ(Chain(20, 1000).workspace_bytes, 2 * AlignUp(1000));
  EXPECT_EQ(Chain(1, 1000).workspace_bytes, AlignUp(1000));
}

TEST(MeasuringMemory, SavedPiecesAndTheOutputLiveElsewhere) {
  MeasuringMemory memory;
  memory.Begin(Phase::kRecord);
  const int saved = memory.Take(300).id;
  const int other = memory.Take(100).id;
  const int output = memory.Take(50).id;
  const int both = memory.Take(700).id;
  memory.Save(saved);
  memory.MarkOutput(output);
  memory.MarkOutput(both);
  memory.Save(both);
  const PhasePlan plan = memory.Plan();
  EXPECT_EQ(plan.placements[saved].region, Region::kSlot);
  EXPECT_EQ(plan.placements[other].region, Region::kWorkspace);
  EXPECT_EQ(plan.placements[output].region, Region::kBoundary);
  EXPECT_EQ(plan.placements[both].region, Region::kSlot);
  EXPECT_EQ(plan.placements[both].offset, AlignUp(300));
  EXPECT_EQ(plan.slot_bytes, AlignUp(300) + AlignUp(700));
  EXPECT_EQ(plan.workspace_bytes, AlignUp(100));
}

// Whatever is asked for: what lives at the same time never overlaps, addresses
// are aligned, and the plan is as large as its pieces say.
TEST(MeasuringMemory, RandomLivesNeverOverlap) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RngKey key = KeyFromSeed(seed);
    MeasuringMemory memory;
    memory.Begin(Phase::kBackward);
    struct Life {
      int64_t first, last;
    };
    std::vector<Life> lives;
    for (int64_t tick = 0; tick < 20; ++tick) {
      const auto r = Philox(key, static_cast<uint64_t>(tick), 0);
      for (uint32_t i = 0; i < r[0] % 4; ++i) {
        memory.Take(1 + (r[1] >> i) % 2000);
        lives.push_back({tick, tick});
      }
      for (size_t id = 0; id < lives.size(); ++id) {
        if (Philox(key, static_cast<uint64_t>(tick), id + 1)[0] % 5 != 0) {
          continue;
        }
        memory.Use(static_cast<int>(id));
        lives[id].last = tick;
      }
      memory.Tick();
    }
    const PhasePlan plan = memory.Plan();
    ASSERT_EQ(plan.placements.size(), lives.size());
    for (size_t i = 0; i < lives.size(); ++i) {
      const Placement& a = plan.placements[i];
      EXPECT_EQ(a.offset % kAlignment, 0);
      EXPECT_LE(a.offset + a.bytes, plan.workspace_bytes);
      for (size_t j = 0; j < i; ++j) {
        const Placement& b = plan.placements[j];
        if (lives[i].first > lives[j].last || lives[j].first > lives[i].last) {
          continue;
        }
        EXPECT_TRUE(a.offset + a.bytes <= b.offset ||
                    b.offset + b.bytes <= a.offset)
            << "pieces " << i << " and " << j << ", seed " << seed;
      }
    }
  }
}

TEST(PlannedMemory, HandsOutThePlan) {
  MeasuringMemory measuring;
  measuring.Begin(Phase::kRecord);
  measuring.Save(measuring.Take(10).id);
  measuring.Take(20);
  measuring.MarkOutput(measuring.Take(30).id);
  VisitPlan plan;
  At(plan, Phase::kRecord) = measuring.Plan();
  PlannedMemory memory(plan);
  std::vector<char> slot(512), workspace(512), boundary(512);
  memory.Bind({slot.data(), workspace.data(), boundary.data()});
  for (int round = 0; round < 2; ++round) {
    memory.Begin(Phase::kRecord);
    EXPECT_EQ(memory.Take(10).data, slot.data());
    EXPECT_EQ(memory.Take(20).data, workspace.data());
    EXPECT_EQ(memory.Take(30).data, boundary.data());
  }
}

TEST(PlannedMemoryDeathTest, RefusesAnotherVisit) {
  VisitPlan plan;
  At(plan, Phase::kEval) = Chain(1, 100);
  PlannedMemory memory(plan);
  std::vector<char> workspace(512);
  memory.Bind({.workspace = workspace.data()});
  memory.Begin(Phase::kEval);
  EXPECT_DEATH(memory.Take(101), "piece 0 of the visit");
  memory.Take(100);
  EXPECT_DEATH(memory.Take(100), "more than it was measured to");
}

TEST(HeapMemory, GivesEverythingBack) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  {
    HeapMemory memory(*device);
    memory.Begin(Phase::kEval);
    EXPECT_NE(memory.Take(100).data, memory.Take(100).data);
    EXPECT_EQ(device->bytes_in_use(), 200);
  }
  EXPECT_EQ(device->bytes_in_use(), 0);
}

}  // namespace
}  // namespace delink::visit_memory_test
