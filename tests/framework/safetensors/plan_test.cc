#include "framework/safetensors/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace delink::safetensors::plan_test {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> NamesOf(const Plan& plan) {
  std::vector<std::string> names;
  for (const Plan::Place& place : plan.places) {
    names.push_back(plan.files[place.file].name);
  }
  return names;
}

// As the safetensors library writes it, and padded as it pads.
TEST(Plan, OneFileHasTheHeaderThatTheLibraryWrites) {
  const auto plan =
      PlanFiles({{"w", Type::kF32, {2, 3}}, {"b", Type::kF32, {}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 1u);
  EXPECT_EQ(plan->files[0].name, "model.safetensors");
  EXPECT_EQ(plan->index, "");
  EXPECT_EQ(plan->total_bytes, 28);
  const std::string text =
      R"({"__metadata__":{"format":"pt"},)"
      R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}}  )";
  ASSERT_EQ(text.size(), 144u);
  EXPECT_EQ(plan->files[0].header, std::string("\x90\0\0\0\0\0\0\0", 8) + text);
  EXPECT_EQ(plan->places[1].begin, 152 + 24);
  EXPECT_EQ(plan->files[0].bytes, 152 + 28);
}

TEST(Plan, FilesAreFilledInOrderAndIndexed) {
  const auto plan = PlanFiles({{"d", Type::kU8, {60}},
                               {"c", Type::kU8, {40}},
                               {"b", Type::kU8, {1}},
                               {"huge", Type::kU8, {101}},
                               {"a", Type::kU8, {100}}},
                              100);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan),
              ::testing::ElementsAre("model-00001-of-00004.safetensors",
                                     "model-00001-of-00004.safetensors",
                                     "model-00002-of-00004.safetensors",
                                     "model-00003-of-00004.safetensors",
                                     "model-00004-of-00004.safetensors"));
  EXPECT_EQ(plan->index, R"({
  "metadata": {
    "total_size": 302
  },
  "weight_map": {
    "a": "model-00004-of-00004.safetensors",
    "b": "model-00002-of-00004.safetensors",
    "c": "model-00001-of-00004.safetensors",
    "d": "model-00001-of-00004.safetensors",
    "huge": "model-00003-of-00004.safetensors"
  }
}
)");
}

TEST(Plan, LargeElementsComeFirstSoThatAllAreAligned) {
  const auto plan = PlanFiles({{"half", Type::kBF16, {3}},
                               {"full", Type::kF32, {1}},
                               {"half2", Type::kF16, {1}},
                               {"full2", Type::kF32, {1}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t data = plan->files[0].bytes - plan->total_bytes;
  EXPECT_EQ(data % 8, 0);
  EXPECT_EQ(plan->places[1].begin, data);
  EXPECT_EQ(plan->places[3].begin, data + 4);
  EXPECT_EQ(plan->places[0].begin, data + 8);
  EXPECT_EQ(plan->places[2].begin, data + 14);
  EXPECT_LT(plan->files[0].header.find("full2"),
            plan->files[0].header.find("\"half\""));
}

TEST(Plan, WhatNoFileCanHoldIsRefused) {
  const auto refusal = [](std::vector<PlannedTensor> tensors) {
    const auto plan = PlanFiles(std::move(tensors));
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  EXPECT_THAT(refusal({{"a", Type::kU8, {1}}, {"a", Type::kU8, {1}}}),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(refusal({{"__metadata__", Type::kU8, {1}}}),
              HasSubstr("cannot have this name"));
  const int64_t large = int64_t{1} << 40;
  EXPECT_THAT(refusal({{"a", Type::kU8, {large, large}}}),
              HasSubstr("larger than any file"));
  EXPECT_THAT(refusal({{"a", Type::kU8, {large, 1 << 21}},
                       {"b", Type::kU8, {large, 1 << 21}}}),
              HasSubstr("larger than any disk"));
}

}  // namespace
}  // namespace delink::safetensors::plan_test
