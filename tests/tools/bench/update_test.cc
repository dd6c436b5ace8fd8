// What the suite of updates measures is what it says.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/thread_pool.h"
#include "tools/bench/bench.h"

namespace delink::bench::update_test {
namespace {

constexpr int64_t kElements = 40'001;

std::vector<char> Bytes(const void* weights) {
  const auto* const bytes = static_cast<const char*>(weights);
  return {bytes, bytes + 2 * kElements};
}

std::unique_ptr<UpdateCase> NewCase(Device& device, UpdateForm form) {
  auto update = UpdateCase::Create(device, form, kElements);
  EXPECT_TRUE(update.ok()) << update.status();
  return *std::move(update);
}

TEST(UpdateCase, ThreePassesMakeTheSameStep) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  ThreadPool pool(2);
  const auto update = NewCase(*device, {});
  const std::vector<char> start = Bytes(update->weights());
  for (int step = 0; step < 3; ++step) {
    update->Fused(pool);
    update->ThreePasses(pool);
    ASSERT_EQ(Bytes(update->weights()), Bytes(update->weights_of_three()));
  }
  EXPECT_NE(Bytes(update->weights()), start);
}

TEST(UpdateCase, MovingAloneChangesNothing) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  ThreadPool pool(2);
  const UpdateForm form = {.master = MasterForm::kSplit,
                           .moments = StateStorage::kBlock8};
  const auto moved = NewCase(*device, form), left = NewCase(*device, form);
  for (const bool past_caches : {false, true}) {
    moved->MoveAlone(pool, past_caches);
  }
  EXPECT_EQ(Bytes(moved->weights()), Bytes(left->weights()));
  moved->Fused(pool);
  left->Fused(pool);
  EXPECT_EQ(Bytes(moved->weights()), Bytes(left->weights()));
}

TEST(UpdateCase, BytesAreThoseOfTheForm) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  // Gradient and weight 2 each; two moments and an f32 master read and written.
  EXPECT_EQ(NewCase(*device, {})->bytes(), 2 + 2 + 3 * 8);
  EXPECT_EQ(NewCase(*device, {.master = MasterForm::kSplit,
                              .moments = StateStorage::kBF16})
                ->bytes(),
            2 + 2 * 4 + 2 * 4);
  EXPECT_EQ(NewCase(*device, {.master = MasterForm::kNone,
                              .moments = StateStorage::kBlock8})
                ->bytes(),
            2 + 4 + 2 * 2 + 2 * 8.0 / 256);
}

TEST(UpdateSuite, MeasuresAllFormsOnEachNumberOfThreads) {
  const auto measures =
      MeasureUpdates({.threads = {1, 2}, .parameters = kElements, .turns = 3},
                     [](const std::string&) {});
  ASSERT_TRUE(measures.ok()) << measures.status();
  ASSERT_EQ(measures->size(), 18u);
  for (const UpdateMeasure& measure : *measures) {
    for (const UpdateTimes& times : {measure.wall, measure.processor}) {
      EXPECT_EQ(times.ratio.samples, 3);
      EXPECT_GT(times.fused.median, 0);
      EXPECT_GT(times.ratio.median, 0);
      EXPECT_GT(times.of_memory.median, 0);
    }
  }
  const std::string text = ToText(*measures);
  EXPECT_NE(text.find("split  bf16          2  18.0"), text.npos) << text;
}

}  // namespace
}  // namespace delink::bench::update_test
