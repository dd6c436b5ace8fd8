// `train --trace`: a file that viewers of Chrome's trace events read, and a run
// that is the same with it and without.
#include "recipes/record/trace_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "framework/base/file.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::trace_file_test {
namespace {

using nlohmann::json;

constexpr int kRanks = 2;
constexpr int64_t kSteps = 20;

int64_t Nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

class TraceFileTest : public ::testing::Test {
 protected:
  TraceFileTest() {
    runs_.sets = {"stage.0.parallel.zero=1", "stage.1.parallel.zero=1"};
  }
  json Read(const std::string& name) {
    return json::parse(*ReadFile(runs_.Folder(name)));
  }
  // The steps that each rank has events of.
  std::map<int, std::set<int64_t>> StepsOf(const json& trace) {
    std::map<int, std::set<int64_t>> steps;
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "X")
        steps[event["pid"]].insert(event["args"]["step"].get<int64_t>());
    }
    return steps;
  }
  TinyRuns runs_;
};

// An event of each lane's instructions after the one before, and what belongs
// to an event.
void ExpectWellFormed(const json& trace) {
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  // By rank and lane: step and index of the instruction before; its end.
  std::map<std::pair<int, int>, std::tuple<int64_t, int64_t, int64_t>> before;
  // By step and instruction: ranks that have it, and what they call it.
  std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> ranks;
  for (const json& event : trace["traceEvents"]) {
    const std::pair<int, int> lane(event["pid"], event["tid"]);
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") {
        threads[lane] = event["args"]["name"];
      } else if (event["name"] == "process_name") {
        processes[lane.first] = event["args"]["name"];
      }
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    const std::string name = event["name"];
    const std::string expected =
        name.starts_with("Reduce") || name.starts_with("Gather") ? "network"
                                                                 : "compute";
    EXPECT_EQ(threads[lane], expected) << name;
    const json& args = event["args"];
    const int64_t step = args["step"], index = args["instruction"];
    const int64_t begin = Nanoseconds(event["ts"]);
    const int64_t end = begin + Nanoseconds(event["dur"]);
    const auto last = before.find(lane);
    if (last != before.end()) {
      const auto [old_step, old_index, old_end] = last->second;
      EXPECT_LT(std::pair(old_step, old_index), std::pair(step, index));
      EXPECT_LE(old_end, begin) << name;
    }
    EXPECT_GT(begin, 0);
    before[lane] = {step, index, end};
    ranks[{step, index}].push_back(name);
    EXPECT_EQ(args.contains("flops"), args.contains("layer")) << name;
    EXPECT_EQ(args.contains("bytes"), !args.contains("layer")) << name;
  }
  // The CPU is the host.
  EXPECT_EQ(trace["otherData"]["device"], json::array({nullptr, nullptr}));
  EXPECT_EQ(processes.size(), kRanks);
  EXPECT_EQ(threads.size(), kRanks * 2);
  for (const auto& [which, names] : ranks) {
    EXPECT_EQ(names, std::vector<std::string>(kRanks, names.front()));
  }
}

TEST_F(TraceFileTest, OfTheStepsThatAreAskedForAcrossASwitch) {
  runs_.Go({.ranks = kRanks, .out = "plain"});
  for (const bool lanes : {false, true}) {
    const std::string out = lanes ? "lanes" : "one";
    runs_.Go({.ranks = kRanks,
              .out = out,
              .trace = runs_.Folder("traces/" + out),
              .trace_steps = {.first = 9, .last = 12},
              .lane_threads = lanes});
    EXPECT_EQ(
        FirstDifference(runs_.Load("plain", kSteps), runs_.Load(out, kSteps)),
        "");
    const json trace = Read("traces/" + out);
    ExpectWellFormed(trace);
    const std::set<int64_t> steps = {9, 10, 11, 12};
    EXPECT_EQ(StepsOf(trace),
              (std::map<int, std::set<int64_t>>{{0, steps}, {1, steps}}));
  }
}

// Ranks of one process read one clock.
TEST_F(TraceFileTest, ShowsWhatStagesSendAndReceive) {
  runs_.Go({.ranks = kRanks,
            .sets = {"stage.0.parallel.pipeline=2"},
            .out = "run",
            .until_step = 2,
            .trace = runs_.Folder("trace")});
  std::map<std::pair<int, int>, std::string> lanes;
  struct Exchanged {
    int64_t begin, end, bytes;
  };
  // By step and what is passed: "(3,a)g of blocks/2".
  std::map<std::pair<int64_t, std::string>, Exchanged> sent, received;
  std::set<std::string> in;
  const json trace = Read("trace");
  for (const json& event : trace["traceEvents"]) {
    const std::pair<int, int> track(event["pid"], event["tid"]);
    const std::string name = event["name"];
    if (name == "thread_name") lanes[track] = event["args"]["name"];
    const bool sends = name.starts_with("Send");
    if (!sends && !name.starts_with("Recv")) continue;
    const json& args = event["args"];
    EXPECT_TRUE(args.contains("layer") && args.contains("micro_batch"));
    EXPECT_FALSE(args.contains("flops"));
    const int64_t begin = Nanoseconds(event["ts"]);
    (sends ? sent : received)[{args["step"], name.substr(4)}] = {
        begin, begin + Nanoseconds(event["dur"]), args["bytes"]};
    const std::string rank = track.first == 0 ? "first: " : "second: ";
    in.insert(rank + lanes[track]);
  }
  EXPECT_EQ(in, (std::set<std::string>{"first: to-next", "first: from-next",
                                       "second: from-previous",
                                       "second: to-previous"}));
  EXPECT_GT(sent.size(), 0);
  EXPECT_EQ(sent.size(), received.size());
  for (const auto& [what, there] : received) {
    ASSERT_TRUE(sent.contains(what)) << what.second;
    EXPECT_GE(there.end, sent.at(what).begin) << what.second;
    EXPECT_EQ(there.bytes, sent.at(what).bytes) << what.second;
    EXPECT_GT(there.bytes, 0) << what.second;
  }
}

TEST_F(TraceFileTest, HasTheFirstStepsOfACallUpToWhereItEnds) {
  runs_.Go({.ranks = kRanks,
            .out = "run",
            .until_step = 3,
            .trace = runs_.Folder("trace")});
  const std::set<int64_t> three = {1, 2, 3};
  EXPECT_EQ(StepsOf(Read("trace")).at(1), three);
  runs_.Go({.ranks = kRanks,
            .out = "run",
            .resume = true,
            .trace = runs_.Folder("trace"),
            .trace_steps = {.last = 2}});
  const std::set<int64_t> two = {4, 5};
  EXPECT_EQ(StepsOf(Read("trace")).at(0), two);
}

TEST_F(TraceFileTest, OfStepsThatAreDoneNothingIsWritten) {
  runs_.Go({.ranks = kRanks,
            .out = "run",
            .until_step = 2,
            .trace = runs_.Folder("trace")});
  const std::string before = *ReadFile(runs_.Folder("trace"));
  runs_.Go({.ranks = kRanks,
            .out = "run",
            .until_step = 3,
            .resume = true,
            .trace = runs_.Folder("trace"),
            .trace_steps = {.first = 1, .last = 2}});
  EXPECT_EQ(*ReadFile(runs_.Folder("trace")), before);
}

TEST_F(TraceFileTest, AFileThatCannotBeWrittenIsRefusedBeforeAnythingIs) {
  ASSERT_TRUE(MakeDirectories(runs_.Folder("folder")).ok());
  const std::pair<const char*, const char*> cases[] = {
      {"folder", "/folder is not a file"},
      {"text.txt/trace", "/text.txt: cannot create folder"}};
  for (const auto& [bad, named] : cases) {
    const absl::Status status =
        runs_.Run({.ranks = kRanks, .out = "run", .trace = runs_.Folder(bad)});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string told(status.message());
    EXPECT_NE(told.find("rank 0: --trace: "), std::string::npos) << told;
    EXPECT_NE(told.find(named), std::string::npos) << told;
    EXPECT_FALSE(PathExists(runs_.Folder("run")));
  }
}

TEST(TraceSteps, AreACountOrARange) {
  EXPECT_EQ(ParseTraceSteps("3")->first, 0);
  EXPECT_EQ(ParseTraceSteps("3")->last, 3);
  EXPECT_EQ(ParseTraceSteps("5:8")->first, 5);
  EXPECT_EQ(ParseTraceSteps("5:8")->last, 8);
  for (const char* bad : {"", "0", "-1", "x", "5:", ":5", "8:5", "0:5", "1:2:3",
                          "99999999999999999999"}) {
    EXPECT_FALSE(ParseTraceSteps(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace delink::testing::trace_file_test
