// What a checkpoint keeps of a run: all of it comes back, less is missing only
// where early builds had less, and what cannot be is refused.
#include "recipes/run/position/saved_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace delink::saved_run_test {
namespace {

using ::testing::HasSubstr;

SavedRun Whole() {
  return {.step = 20,
          .tokens = 5120,
          .samples = 160,
          .stage = "real",
          .stage_index = 1,
          .stage_begin_step = 10,
          .stage_begin_samples = 80,
          .stage_losses = {3, 2.5},
          .stage_probes = {12, 4, 3, 15, 2, 1},
          .validation = {2.5, 20, 2.5, 0},
          .validated_on = "16 abc",
          .skipped = {1, 0, 0.5},
          .corpus = "abc,def",
          .sources = {{.name = "prose",
                       .corpus = "abc",
                       .samples = 120,
                       .tokens = 3840,
                       .epochs = 1.5,
                       .begin = 60,
                       .share = 0.75},
                      {.name = "code", .corpus = "def", .samples = 40}},
          .seconds = 12.5,
          .flops = 1.5e18};
}

absl::StatusOr<SavedRun> Back(const SavedRun& run) {
  return SavedRun::From("here", {.step = run.step, .values = run.Values()});
}

TEST(SavedRunTest, AllOfItComesBack) {
  const SavedRun run = Whole();
  const auto back = Back(run);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->step, 20);
  EXPECT_EQ(back->Values(), run.Values());
  EXPECT_EQ(back->sources, run.sources);
  EXPECT_EQ(back->Counts(), run.sources);
  // By the names that checkpoints have always had.
  const NamedValues values = run.Values();
  EXPECT_EQ(values.size(), 14U + 2 * 7U);
  EXPECT_EQ(values.at("stage_begin_samples"), NamedValues::mapped_type(80L));
  EXPECT_EQ(values.at("sources/0/share"), NamedValues::mapped_type(0.75));
  EXPECT_EQ(values.at("stage/losses"),
            NamedValues::mapped_type(std::vector<double>{3, 2.5}));
}

TEST(SavedRunTest, EarlyBuildsWroteLess) {
  SavedRun run = Whole();
  run.stage_losses.clear();
  run.stage_probes.clear();
  run.validation.clear();
  run.skipped.clear();
  run.validated_on = "";
  run.sources.clear();
  run.corpus = "abc";
  run.flops = std::nan("");
  EXPECT_EQ(run.Values().size(), 8U);
  const auto back = Back(run);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->Values(), run.Values());
  EXPECT_TRUE(std::isnan(back->flops));
  EXPECT_EQ(
      back->Counts(),
      (std::vector<SourceCount>{
          {.name = "data", .corpus = "abc", .samples = 160, .tokens = 5120}}));
}

TEST(SavedRunTest, WhatIsMissingIsNamed) {
  for (const char* name : {"tokens", "seconds", "stage", "sources/1/share"}) {
    NamedValues values = Whole().Values();
    values.erase(name);
    const absl::Status status =
        SavedRun::From("here", {.step = 20, .values = values}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("': missing"));
  }
}

TEST(SavedRunTest, WhatCannotBeIsRefused) {
  const int64_t least = std::numeric_limits<int64_t>::min();
  const struct {
    std::function<void(SavedRun&)> change;
    const char* says;
  } rows[] = {
      {[&](SavedRun& r) { r.tokens = least; },
       "its tokens is -9223372036854775808, not from 0 to "
       "4611686018427387904"},
      {[&](SavedRun& r) { r.samples = least; }, "its samples is"},
      {[&](SavedRun& r) { r.stage_index = -1; },
       "its stage_index is -1, not from 0 to 1000000000"},
      {[](SavedRun& r) { r.stage_begin_step = int64_t{1} << 62; },
       "its stage_begin_step is 4611686018427387904, not from 0 to 20"},
      {[](SavedRun& r) { r.stage_begin_samples = 161; },
       "its stage_begin_samples is 161, not from 0 to 160"},
      {[](SavedRun& r) { r.stage_probes[3] = 12; },
       "/stage/probes makes no sense"},
      {[](SavedRun& r) { r.stage_probes[0] = 1.5; },
       "/stage/probes makes no sense"},
      {[](SavedRun& r) {
         r.stage_probes[1] = std::numeric_limits<double>::infinity();
       },
       "/stage/probes makes no sense"},
      {[](SavedRun& r) { r.validation[1] = 21; }, "/validation makes no sense"},
      {[](SavedRun& r) { r.validation[3] = 1e300; },
       "/validation makes no sense"},
      {[](SavedRun& r) { r.skipped[1] = -2; }, "/skipped makes no sense"},
  };
  for (const auto& row : rows) {
    SavedRun run = Whole();
    row.change(run);
    const absl::Status status = Back(run).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("here: ") + row.says));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("; another program wrote it"));
  }
}

}  // namespace
}  // namespace delink::saved_run_test
