// One row of a sweep's table, from what a run leaves.
#include "tools/sweep/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::sweep::table_test {
namespace {

// A run of 40 steps of 10 tokens, 2 seconds and 1e15 FLOPs: the loss of step n
// is n, a validation every 10 steps finds 100 - n.
std::string Metrics(int steps) {
  std::string text;
  for (int step = 1; step <= steps; ++step) {
    const std::string place = absl::StrCat(
        "{\"step\":", step, ",\"tokens\":", 10 * step, ",\"flops\":", step,
        "e15,\"stage\":\"real\",\"seconds\":", 2 * step);
    absl::StrAppend(&text, place, ",\"loss\":", step,
                    ",\"tokens_per_s\":5,\"peak_memory\":", 1000 + step, "}\n");
    if (step % 10 == 0) {
      absl::StrAppend(&text, place, ",\"validation_loss\":", 100 - step, "}\n");
    }
  }
  return text;
}

class TableTest : public ::testing::Test {
 protected:
  TableTest() {
    spec_.at_tokens = {250, 1000};
    spec_.at_seconds = {19};
    spec_.at_flops = {2.55e16, 1e22};
    EXPECT_TRUE(MakeDirectories(dir_ / "run").ok());
    EXPECT_TRUE(
        WriteFile(dir_ / "run/recipe.toml", "[schedule]\nsteps = 40\n").ok());
  }
  void Leave(const std::string& metrics) {
    EXPECT_TRUE(WriteFile(dir_ / "run/metrics.jsonl", metrics).ok());
  }
  std::map<std::string, double> Read() {
    const GridRun run{.name = "a", .settings = {{"lr", "1"}}};
    table_ = EmptyTable(spec_, {run});
    ReadRow(spec_, dir_ / "run", &table_.rows[0]);
    std::map<std::string, double> values;
    for (size_t i = 0; i < table_.measures.size(); ++i) {
      values[table_.measures[i]] = table_.rows[0].measures[i];
    }
    return values;
  }
  std::string status() const { return table_.rows[0].status; }

  testing::TempDir dir_;
  Spec spec_;
  Table table_;
};

TEST_F(TableTest, LossesAtTheEndAndOnTheWay) {
  Leave(Metrics(40));
  std::map<std::string, double> row = Read();
  EXPECT_EQ(status(), "finished");
  EXPECT_EQ(row["steps"], 40);
  EXPECT_EQ(row["tokens"], 400);
  EXPECT_EQ(row["seconds"], 80);
  EXPECT_EQ(row["flops"], 4e16);
  EXPECT_EQ(row["train_loss"], 30.5);  // of steps 21 to 40
  EXPECT_EQ(row["validation_loss"], 60);
  EXPECT_EQ(row["best_validation_loss"], 60);
  EXPECT_EQ(row["best_step"], 40);
  EXPECT_EQ(row["train_loss_at_250_tokens"], 15.5);  // of steps 6 to 25
  EXPECT_EQ(row["validation_loss_at_250_tokens"], 80);
  EXPECT_TRUE(std::isnan(row["train_loss_at_1000_tokens"]));
  EXPECT_EQ(row["train_loss_at_19_s"], 5);  // of steps 1 to 9
  EXPECT_TRUE(std::isnan(row["validation_loss_at_19_s"]));
  EXPECT_EQ(row["train_loss_at_2.55e16_flops"], 15.5);  // as at 250 tokens
  EXPECT_EQ(row["validation_loss_at_2.55e16_flops"], 80);
  EXPECT_TRUE(std::isnan(row.at("train_loss_at_1e22_flops")));
  EXPECT_EQ(row["tokens_per_s"], 5);
  EXPECT_EQ(row["peak_memory"], 1040);
}

TEST_F(TableTest, TheBestMayBeBeforeTheEnd) {
  Leave(Metrics(29) +
        "{\"step\":30,\"tokens\":300,\"validation_loss\":99}\n"
        "{\"event\":\"early_end\",\"step\":30,\"why\":\"nothing better\"}\n");
  std::map<std::string, double> row = Read();
  EXPECT_EQ(status(), "early");
  EXPECT_EQ(row["validation_loss"], 99);
  EXPECT_EQ(row["best_validation_loss"], 80);
  EXPECT_EQ(row["best_step"], 20);
}

TEST_F(TableTest, ARunThatWentOnHasNotEndedEarly) {
  const std::string end =
      "{\"event\":\"early_end\",\"step\":29,\"why\":\"nothing better\"}\n";
  const std::string cut = "{\"step\":30,\"tokens\":300,\"loss\":3}\n";
  Leave(Metrics(29) + end);
  Read();
  EXPECT_EQ(status(), "early");
  Leave(Metrics(29) + end + cut);
  Read();
  EXPECT_EQ(status(), "cut");
  Leave(Metrics(29) + end + cut + "{\"step\":40,\"tokens\":400,\"loss\":3}\n");
  Read();
  EXPECT_EQ(status(), "finished");
}

TEST_F(TableTest, ARunThatIsNotWhole) {
  Read();
  EXPECT_EQ(status(), "cut");
  Leave(Metrics(12));
  EXPECT_EQ(Read()["steps"], 12);
  EXPECT_EQ(status(), "cut");
  ASSERT_TRUE(RemoveAll(dir_ / "run").ok());
  Read();
  EXPECT_EQ(status(), "waiting");
}

TEST_F(TableTest, CsvIsQuotedWhereItMust) {
  Read();
  table_.measures = {"loss"};
  Row& row = table_.rows[0];
  row.settings = {"[1, 2]"};
  row.measures = {0.1};
  row.error = "he said \"no\"";
  row.status = "failed";
  table_.rows.push_back(
      {.name = "b", .settings = {"x"}, .measures = {std::nan("")}});
  EXPECT_EQ(ToCsv(table_),
            "name,lr,status,loss,error\n"
            "a,\"[1, 2]\",failed,0.1,\"he said \"\"no\"\"\"\n"
            "b,x,waiting,,\n");
  const auto json = nlohmann::json::parse(ToJson(table_));
  EXPECT_EQ(json["rows"][0]["error"], "he said \"no\"");
  EXPECT_TRUE(json["rows"][1]["measures"][0].is_null());
  const Table names = NamesFromJson(ToJson(table_));
  EXPECT_EQ(names.settings, table_.settings);
  ASSERT_EQ(names.rows.size(), 2u);
  EXPECT_EQ(names.rows[1].name, "b");
}

TEST(NamesFromJsonTest, WhatIsNoTableHasNone) {
  for (const char* text : {"", "[]", "{\"settings\":[],\"rows\":[1]}",
                           "{\"settings\":[1],\"rows\":[]}"}) {
    EXPECT_TRUE(NamesFromJson(text).rows.empty()) << text;
  }
}

TEST(FirstErrorTest, TheFirstErrorElseTheLastLine) {
  EXPECT_EQ(FirstError("begins\nerror: no corpus\nerror: more\n"),
            "error: no corpus");
  EXPECT_EQ(FirstError("rank 1: error: torn\n-----\n"), "rank 1: error: torn");
  EXPECT_EQ(FirstError("terminate called\nAborted \n\n"), "Aborted");
  EXPECT_EQ(FirstError("begins\n-----\nA process died.\n\nIt had no time.\n"
                       "-----\n"),
            "A process died.");
  EXPECT_EQ(FirstError(""), "");
}

}  // namespace
}  // namespace delink::sweep::table_test
