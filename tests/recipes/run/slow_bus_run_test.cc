// Runs whose copies between homes are slowed: the bits of one whose are not,
// while copies go both ways at once and the next step is begun. By the order of
// their traces alone: copies take so much longer than what a tiny model
// computes that it is so in one of many cases at the least, however busy the
// machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/program/instruction.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::slow_bus_run_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr double kLatency = 0.02;
constexpr int64_t kSteps = 4;

struct Event {
  std::string name;
  int64_t step = 0;
  double begin = 0, end = 0;  // seconds
};
// By lane.
using Events = std::map<Lane, std::vector<Event>>;

Events ReadEvents(const std::string& path) {
  Events events;
  const json trace = json::parse(std::ifstream(path));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = 1e-6 * event["ts"].get<double>();
    events[static_cast<Lane>(event["tid"].get<int>())].push_back(
        {.name = event["name"],
         .step = event["args"]["step"],
         .begin = begin,
         .end = begin + 1e-6 * event["dur"].get<double>()});
  }
  return events;
}

int Overlaps(const std::vector<Event>& some, const std::vector<Event>& others) {
  int count = 0;
  for (const Event& one : some) {
    for (const Event& other : others) {
      count += one.begin < other.end && other.begin < one.end ? 1 : 0;
    }
  }
  return count;
}

class SlowBusRunTest : public ::testing::Test {
 protected:
  ~SlowBusRunTest() override { unsetenv("DELINK_BUS"); }

  RunRequest Request(const std::string& out) const {
    const std::string offload =
        "{ rows = [{ match = \"blocks/0/*\", update = \"host\" },"
        " { match = \"blocks/1/*\", update = \"host\" }] }";
    return {.sets = {"stage.0.share=none", "stage.0.offload=" + offload,
                     "run.order=layer"},
            .out = out,
            .until_step = kSteps,
            .trace = runs_.Folder(out + ".json"),
            .trace_steps = {.first = 1, .last = kSteps}};
  }

  const TinyRuns runs_;
};

TEST_F(SlowBusRunTest, CopiesAndUpdatesGoOnBesideCompute) {
  runs_.Go(Request("near"));
  setenv("DELINK_BUS", "0.02,1e12", 1);
  runs_.Go(Request("far"));
  runs_.ExpectSameBits("near", "far", kSteps);

  Events far = ReadEvents(runs_.Folder("far.json"));
  std::vector<Event> in, out;
  for (const Event& event : far[Lane::kIn]) {
    if (event.name.starts_with("Fetch")) in.push_back(event);
  }
  for (const Event& event : far[Lane::kOut]) {
    if (event.name.starts_with("Evict")) out.push_back(event);
  }
  ASSERT_GT(in.size(), 0U);
  ASSERT_GT(out.size(), 0U);
  // Microseconds of a trace are rounded.
  for (const auto& way : {in, out}) {
    for (const Event& copy : way) {
      EXPECT_GE(copy.end - copy.begin, kLatency - 2e-6) << copy.name;
    }
  }
  EXPECT_GT(Overlaps(in, out), 0);
  // The next step begins while the last gradients are on their way, and before
  // the host updates by them.
  std::map<int64_t, double> begun;
  for (const Event& event : far[Lane::kCompute]) {
    if (event.name.starts_with("F(0,a)")) begun[event.step] = event.begin;
  }
  int leaving = 0, updating = 0;
  for (int64_t step = 1; step < kSteps; ++step) {
    const double next = begun.at(step + 1);
    for (const Event& event : out) {
      if (event.step == step && event.end > next) ++leaving;
    }
    for (const Event& event : far[Lane::kHost]) {
      if (event.step == step && event.begin > next) ++updating;
    }
  }
  EXPECT_GT(leaving, 0);
  EXPECT_GT(updating, 0);
}

TEST_F(SlowBusRunTest, WhatSaysNoBusIsRefused) {
  setenv("DELINK_BUS", "1 GB/s", 1);
  const absl::Status status = runs_.Run(Request("bad"));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("DELINK_BUS: '1 GB/s' is not a link"));
}

}  // namespace
}  // namespace delink::testing::slow_bus_run_test
