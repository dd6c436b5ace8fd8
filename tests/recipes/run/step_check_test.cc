// The time of steps beside their plan's.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "offload/rates/machine_rates.h"
#include "recipes/schema/machine_file.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/cpu_rates.h"
#include "tests/testing/environment_variable.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::step_check_test {
namespace {

class StepCheck : public ::testing::Test {
 protected:
  StepCheck() : cache_("XDG_CACHE_HOME", folder_.path()) {
    runs_.sets = {"model.layers=2",
                  "data.seq=8",
                  "data.batch=2",
                  "schedule.steps=205",
                  "stage.0.until.steps=102",
                  "run.checkpoint_every=205"};
  }
  static void StoreRates(double flops, double latency = 0) {
    offload::MachineRates rates = CpuRates(flops, 1e9, 1e12);
    if (latency > 0) {
      rates.inside = {.latency = latency, .bytes_per_s = 1e12};
    }
    ASSERT_TRUE(WriteMachine(rates, *offload::DefaultMachineRatesPath()).ok());
  }
  std::vector<nlohmann::json> Timed(const std::string& out) const {
    std::vector<nlohmann::json> timed;
    for (const nlohmann::json& row : runs_.Rows(out)) {
      if (row.value("event", "") == "timed") timed.push_back(row);
    }
    return timed;
  }

  TempDir folder_;
  EnvironmentVariable cache_;
  TinyRuns runs_;
};

TEST_F(StepCheck, SaysAfterAHundredStepsOfEachStage) {
  runs_.Go({.out = "unknown"});
  EXPECT_TRUE(Timed("unknown").empty());
  StoreRates(1e15);
  runs_.Go({.out = "slow"});
  const std::vector<nlohmann::json> timed = Timed("slow");
  ASSERT_EQ(timed.size(), 2);
  EXPECT_EQ(timed[0]["step"], 100);
  EXPECT_EQ(timed[0]["stage"], "pseudo");
  EXPECT_EQ(timed[1]["step"], 202);
  EXPECT_EQ(timed[1]["stage"], "real");
  for (const nlohmann::json& row : timed) {
    const nlohmann::json& compute = row["lanes"]["compute"];
    EXPECT_GT(row["planned_step_seconds"], 0);
    EXPECT_GT(row["step_seconds"], row["planned_step_seconds"]);
    EXPECT_GT(compute["measured"], compute["planned"]);
    // A lane is busy within a step, and a mean is near the median.
    EXPECT_LT(compute["measured"], 10 * row["step_seconds"].get<double>());
  }
  runs_.ExpectSameBits("unknown", "slow", 205);
}

// As `delink plan --machine` does.
TEST_F(StepCheck, PlansExchangesBetweenRanks) {
  StoreRates(1e15, 0.5);
  runs_.Go({.ranks = 2, .sets = {"run.micro_batch=1"}, .out = "exchanges"});
  const std::vector<nlohmann::json> timed = Timed("exchanges");
  ASSERT_EQ(timed.size(), 2);
  EXPECT_GT(timed[1]["planned_step_seconds"], 0.5);
}

TEST_F(StepCheck, LeavesAUsersTraceAlone) {
  StoreRates(1e15);
  runs_.Go({.out = "traced", .trace = folder_ / "trace.json"});
  ASSERT_EQ(Timed("traced").size(), 2);
  EXPECT_TRUE(Timed("traced")[0]["lanes"].empty());
}

}  // namespace
}  // namespace delink::testing::step_check_test
