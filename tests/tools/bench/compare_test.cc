// Reports read back and held side by side.
#include "tools/bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace delink::bench::compare_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Timing Took(double seconds, double spread = 0.01) {
  return {.median = seconds,
          .low = seconds * (1 - spread / 2),
          .high = seconds * (1 + spread / 2),
          .samples = 9};
}

OpMeasure Op(const std::string& name, double seconds, double peak) {
  return {.name = name,
          .shape = "8 x 8",
          .dtype = DType::kBF16,
          .seconds = Took(seconds),
          .peak = peak};
}

BenchReport Sample() {
  BenchReport report{.version = "delink 1", .time = "2026-01-31T12:00:00Z"};
  report.machine = {
      .processor = "Abacus",
      .cores = 4,
      .threads = 2,
      .matmul = {{DType::kF32, 1e11, 512}, {DType::kBF16, 2e11, 768}},
      .bandwidth = {.read = 2e10, .triad = 1.5e10}};
  report.ops = {Op("add", 1e-3, 0.5), Op("gelu", 2e-3, 0.8)};
  report.steps = {{.step = {.shape = "gpt-tiny", .seq = 8, .batch = 2},
                   .seconds = Took(0.5),
                   .peak = 0.6}};
  return report;
}

std::vector<std::string> Slower(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const Change& change : comparison.changes) {
    if (change.slower()) names.push_back(change.what);
  }
  return names;
}

TEST(Report, ReadsBack) {
  const BenchReport report = Sample();
  const auto read = ReadReport(ToJson(report), "a.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->version, report.version);
  EXPECT_EQ(read->time, report.time);
  EXPECT_TRUE(SameMachine(read->machine, report.machine));
  EXPECT_EQ(read->machine.matmul[1].flops_per_s, 2e11);
  EXPECT_EQ(read->ops[1].name, "gelu");
  EXPECT_EQ(read->ops[1].dtype, DType::kBF16);
  EXPECT_EQ(read->ops[1].seconds.high, report.ops[1].seconds.high);
  EXPECT_EQ(read->steps[0].step, report.steps[0].step);
  EXPECT_DOUBLE_EQ(read->steps[0].peak, 0.6);
}

TEST(Report, WhatIsNoneIsTold) {
  const std::string whole = ToJson(Sample());
  std::string later = whole;
  const std::string version = "\"format_version\": 1";
  later.replace(later.find(version), version.size(), "\"format_version\": 9");
  std::string without = whole;
  without.replace(without.find("\"machine\""), 9, "\"engine\"");
  std::string other_type = whole;
  other_type.replace(other_type.find("\"Abacus\""), 8, "[1]");
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {"", "not whole JSON"},
      {whole.substr(0, whole.size() / 2), "not whole JSON (byte "},
      {"not json", "not whole JSON"},
      {"[1, 2]", "not a measurement"},
      {"{\"stages\": []}", "not a measurement"},
      {"{\"format\": 3}", "has a missing or wrong value"},
      {later, "has format 9, but this program reads format 1"},
      {without, "has a missing or wrong value"},
      {other_type, "has a missing or wrong value"},
  };
  for (const auto& [text, message] : cases) {
    const auto read = ReadReport(text, "old.json");
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << text;
    EXPECT_THAT(
        std::string(read.status().message()),
        AllOf(HasSubstr("old.json: "), HasSubstr(message),
              HasSubstr("give a file that delink bench --json has written")));
  }
}

TEST(Compare, TimesOnTheSameMachine) {
  const BenchReport before = Sample();
  BenchReport now = Sample();
  now.ops[0].seconds = Took(1.2e-3);   // a fifth more
  now.ops[1].seconds = Took(2.01e-3);  // within the spread
  now.steps[0].seconds = Took(0.4);
  now.machine.matmul[0].flops_per_s = 5e10;
  const Comparison comparison = Compare(before, now);
  EXPECT_TRUE(comparison.same_machine);
  EXPECT_THAT(Slower(comparison),
              ElementsAre("machine: matmul f32", "add 8 x 8 bf16"));
  const std::string text = ToText(comparison, before, now);
  EXPECT_THAT(text, AllOf(HasSubstr("add 8 x 8 bf16"), HasSubstr("x 1.200"),
                          HasSubstr("x 0.800"), Not(HasSubstr("gelu")),
                          Not(HasSubstr("another machine")),
                          HasSubstr("4 of 7 within their spread")));
}

TEST(Compare, AWideSpreadHidesAChange) {
  const BenchReport before = Sample();
  BenchReport now = Sample();
  now.ops[0].seconds = Took(1.2e-3, 0.3);
  EXPECT_THAT(Slower(Compare(before, now)), ElementsAre());
}

TEST(Compare, OnlyPartsOfThePeakOnAnotherMachine) {
  const BenchReport before = Sample();
  BenchReport now = Sample();
  now.machine.processor = "Slide rule";
  // Ten times as slow as there, but nearer to what this machine can do.
  now.ops[0] = Op("add", 1e-2, 0.75);
  now.ops[1] = Op("gelu", 2e-2, 0.4);
  now.machine.bandwidth.read = 1e9;
  const Comparison comparison = Compare(before, now);
  EXPECT_FALSE(comparison.same_machine);
  EXPECT_THAT(Slower(comparison), ElementsAre("gelu 8 x 8 bf16"));
  EXPECT_EQ(comparison.changes.size(), 3u);  // the machine itself is none
  EXPECT_THAT(ToText(comparison, before, now),
              AllOf(HasSubstr("another machine (Abacus, 4 cores"),
                    HasSubstr("x 2.000"), HasSubstr("x 0.667")));
}

TEST(Compare, WhatOnlyOneHasIsNoChange) {
  BenchReport before = Sample(), now = Sample();
  before.ops.push_back(Op("gone", 1, 1));
  now.ops.push_back(Op("new", 1, 1));
  const Comparison comparison = Compare(before, now);
  EXPECT_THAT(comparison.missing, ElementsAre("gone 8 x 8 bf16"));
  EXPECT_EQ(comparison.changes.size(), 7u);
  EXPECT_THAT(Slower(comparison), ElementsAre());
}

}  // namespace
}  // namespace delink::bench::compare_test
