// What went wrong for others who keep gradients and optimizer state on the
// host, each a test that would have caught it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::offload_known_failures_test {
namespace {

using ::testing::HasSubstr;

// All on the host and updated by the device, or by the host; some here and some
// there; gradients alone, which is what micro-batches add to.
const std::vector<std::string> kHomes = {
    "weights=\"host\",gradients=\"host\",state=\"host\"",
    "update=\"host\",weights=\"host\",gradients=\"host\"", "resident=0.5",
    "rows=[{match=\"blocks/[02]/*\",update=\"host\"},"
    "{match=\"*\",state=\"host\"}]",
    "gradients=\"host\""};

class OffloadFailures : public ::testing::Test {
 protected:
  OffloadFailures() {
    runs_.sets = {"model.layers=2",
                  "model.dim=16",
                  "data.seq=16",
                  "data.validation_batches=1",
                  "run.norms_every=0",
                  "run.validate_every=0",
                  "run.checkpoint_every=1",
                  "stage.0.share=none",
                  "optimizer.clip=0.5"};
  }
  // The folder of three steps.
  std::string Go(std::vector<std::string> sets, int ranks = 1,
                 bool lane_threads = false) {
    const std::string out = absl::StrCat("run", made_++);
    runs_.Go({.ranks = ranks,
              .sets = std::move(sets),
              .out = out,
              .until_step = 3,
              .lane_threads = lane_threads});
    return out;
  }
  static std::vector<std::string> And(std::vector<std::string> sets,
                                      const std::string& homes) {
    sets.push_back(absl::StrCat("stage.0.offload={", homes, "}"));
    return sets;
  }

  TinyRuns runs_;
  int made_ = 0;
};

// Only some micro-batches reached the optimizer. A rate and clipping that show
// it.
TEST_F(OffloadFailures, AllMicroBatchesReachTheOptimizer) {
  for (const int micro_batch : {8, 4, 2}) {
    const std::vector<std::string> sets = {
        absl::StrCat("run.micro_batch=", micro_batch), "optimizer.kind=sgd",
        "optimizer.lr=0.05"};
    const std::string resident = Go(sets);
    for (const std::string& homes : kHomes) {
      SCOPED_TRACE(absl::StrCat(micro_batch, ": ", homes));
      runs_.ExpectSameBits(resident, Go(And(sets, homes)), 3);
    }
  }
  for (const int micro_batch : {4, 2, 1}) {
    const std::vector<std::string> sets = {
        absl::StrCat("run.micro_batch=", micro_batch),
        "stage.0.parallel.data=2", "stage.0.parallel.zero=1"};
    const std::string resident = Go(sets, 2);
    for (const std::string& homes : {kHomes[1], kHomes[3]}) {
      SCOPED_TRACE(absl::StrCat("sharded, ", micro_batch, ": ", homes));
      runs_.ExpectSameBits(resident, Go(And(sets, homes), 2), 3);
    }
  }
}

// A part of the weights never trained: elements that a step moved.
TEST_F(OffloadFailures, EveryElementMovesAsTheReferenceDoes) {
  const std::vector<std::string> sets = {"optimizer.kind=lion",
                                         "schedule.warmup=0"};
  const std::string resident = Go(sets);
  const Tensors from = runs_.Load(resident, 1), to = runs_.Load(resident, 2);
  size_t moved = 0, blocks = 0;
  for (const auto& [name, values] : from) {
    if (!absl::StartsWith(name, "/model/blocks")) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      ++blocks;
      moved += values[i] != to.at(name)[i] ? 1u : 0u;
    }
  }
  EXPECT_GT(moved, blocks * 9 / 10);
  for (const std::string& homes : kHomes) {
    SCOPED_TRACE(homes);
    const std::string out = Go(And(sets, homes));
    for (const int64_t step : {1, 2, 3}) {
      EXPECT_EQ(
          FirstDifference(runs_.Load(resident, step), runs_.Load(out, step)),
          "")
          << step;
    }
  }
}

// Adam's count moved between the groups of one step: corrections of the first
// steps are where it shows.
TEST_F(OffloadFailures, AdamCountsOnceAStep) {
  const std::vector<std::string> sets = {"schedule.warmup=0"};
  const std::string resident = Go(sets);
  const std::string groups[] = {
      "update=\"host\"", "rows=[{match=\"blocks/0/*\",update=\"host\"}]",
      "rows=[{match=\"*/mlp/*\",update=\"host\"}]",
      "rows=[{match=\"embed/*\",update=\"host\"},"
      "{match=\"blocks/1/*\",update=\"host\"}],state=\"host\"",
      "state=\"host\""};
  for (const std::string& homes : groups) {
    SCOPED_TRACE(homes);
    runs_.ExpectSameBits(resident, Go(And(sets, homes)), 3);
  }
}

// Copies that overlap, and lanes whose turns are the scheduler's.
TEST_F(OffloadFailures, OverlapIsTheSameBits) {
  const std::vector<std::string> sets = {"stage.0.parallel.data=2",
                                         "stage.0.parallel.zero=1",
                                         "run.micro_batch=1"};
  const std::string resident = Go(sets, 2);
  for (const std::string& homes : kHomes) {
    for (const bool lane_threads : {false, true}) {
      SCOPED_TRACE(absl::StrCat(homes, lane_threads ? ", threads" : ""));
      runs_.ExpectSameBits(resident, Go(And(sets, homes), 2, lane_threads), 3);
    }
  }
}

TEST_F(OffloadFailures, ARowThatMatchesNothingIsSaid) {
  const absl::Status status =
      runs_.Run({.sets = {"stage.1.offload={rows=[{match=\"*\",state=\"host\"},"
                          "{match=\"blocks/2/*\",state=\"host\"}]}"},
                 .out = "none"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("stage[1].offload.rows[1].match: 'blocks/2/*' matches "
                        "no parameter; names are as embed/token/weight"));
}

}  // namespace
}  // namespace delink::testing::offload_known_failures_test
