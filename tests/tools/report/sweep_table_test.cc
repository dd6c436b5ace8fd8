// Means and spread over the seeds of a sweep.
#include "tools/report/sweep_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::report::sweep_table_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json Row(const std::string& lr, const std::string& seed, const Json& loss,
         const std::string& status = "finished") {
  return {{"name", "lr=" + lr + "_seed=" + seed},
          {"status", status},
          {"error", status == "failed" ? "error: torn" : ""},
          {"settings", {lr, seed}},
          {"measures", {loss, nullptr}}};
}

class SweepTableTest : public ::testing::Test {
 protected:
  void Leave(const std::string& text) {
    EXPECT_TRUE(WriteFile(dir_ / "sweep.json", text).ok());
  }
  testing::TempDir dir_;
};

TEST_F(SweepTableTest, GroupsByAllButTheSeed) {
  EXPECT_FALSE(HoldsSweep(dir_.path()));
  const Json sweep = {
      {"settings", {"lr", "seed"}},
      {"measures", {"loss", "other"}},
      {"rows",
       {Row("1", "1", 2.0), Row("2", "1", 5.0), Row("1", "2", 4.0),
        Row("2", "2", 9.0, "cut"), Row("1", "3", 9.0, "early"),
        Row("3", "1", nullptr, "failed")}}};
  Leave(sweep.dump());
  ASSERT_TRUE(HoldsSweep(dir_.path()));
  const auto json = SweepJson(dir_.path());
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["settings"], Json::parse("[\"lr\"]"));
  const Json& groups = (*json)["groups"];
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0]["settings"], Json::parse("[\"1\"]"));
  EXPECT_EQ(groups[0]["runs"], 3);
  EXPECT_EQ(groups[0]["done"], 3);
  EXPECT_EQ(groups[0]["mean"][0], 5.0);
  EXPECT_NEAR(groups[0]["spread"][0].get<double>(), std::sqrt(13), 1e-12);
  EXPECT_TRUE(groups[0]["mean"][1].is_null());
  EXPECT_EQ(groups[0]["counts"], Json::parse("[3, 0]"));
  // Of one run there is no spread, and what is cut is not counted.
  EXPECT_EQ(groups[1]["runs"], 2);
  EXPECT_EQ(groups[1]["done"], 1);
  EXPECT_EQ(groups[1]["mean"][0], 5.0);
  EXPECT_TRUE(groups[1]["spread"][0].is_null());
  EXPECT_EQ((*json)["failures"][0]["name"], "lr=3_seed=1");
  EXPECT_EQ((*json)["failures"][0]["error"], "error: torn");
}

// Losses after so many tokens of a run that did not get so far.
TEST_F(SweepTableTest, TellsOfHowManyRunsAMeanIs) {
  const Json sweep = {{"settings", {"lr", "seed"}},
                      {"measures", {"loss", "other"}},
                      {"rows", {Row("1", "1", 2.0), Row("1", "2", nullptr)}}};
  Leave(sweep.dump());
  const auto json = SweepJson(dir_.path());
  ASSERT_TRUE(json.ok()) << json.status();
  const Json& group = (*json)["groups"][0];
  EXPECT_EQ(group["done"], 2);
  EXPECT_EQ(group["counts"], Json::parse("[1, 0]"));
  EXPECT_EQ(group["mean"][0], 2.0);
}

TEST_F(SweepTableTest, NamesTheRunsThatHaveBegun) {
  const Json sweep = {{"settings", {"lr", "seed"}},
                      {"measures", {"loss", "other"}},
                      {"rows", {Row("1", "1", 2.0), Row("../../1", "2", 2.0)}}};
  Leave(sweep.dump());
  EXPECT_THAT(*RunsOfSweep(dir_.path()), ElementsAre());
  const std::string run = dir_ / "runs/lr=1_seed=1";
  ASSERT_TRUE(MakeDirectories(run).ok());
  ASSERT_TRUE(WriteFile(run + "/metrics.jsonl", "").ok());
  EXPECT_THAT(*RunsOfSweep(dir_.path()), ElementsAre(run));
}

TEST_F(SweepTableTest, WhatIsNoTableIsSaidToBeNone) {
  for (const char* text :
       {"", "[]", "{}", "{\"settings\":[],\"measures\":[]}",
        "{\"settings\":[],\"measures\":[],\"rows\":[3]}",
        "{\"settings\":[\"a\"],\"measures\":[],\"rows\":[{\"name\":\"x\","
        "\"status\":\"\",\"error\":\"\",\"settings\":[],\"measures\":[]}]}"}) {
    Leave(text);
    const absl::Status status = SweepJson(dir_.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("sweep.json"));
  }
}

}  // namespace
}  // namespace delink::report::sweep_table_test
