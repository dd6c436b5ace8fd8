// When the emulated device ran what the host had enqueued, and what profilers
// are told of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/comm/self_communicator.h"
#include "framework/step/time/trace.h"
#include "recipes/record/run_folder.h"
#include "tests/recipes/run/step_rig.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/simt/simt.h"

namespace delink::testing::cuda_trace_test {
namespace {

constexpr double kLr = 1e-3;
constexpr int64_t kFirst = 2, kLast = 4, kSteps = 6;

RigOptions Options(Trace* trace) {
  return {.device = DeviceKind::kCuda,
          .dtype = DType::kBF16,
          .layers = 2,
          .global_batch = 4,
          .recompute = true,
          .trace = trace};
}

// By step and instruction.
using Spans = std::map<std::pair<int64_t, int32_t>, Trace::Span>;

Spans Sorted(const std::vector<Trace::Span>& spans) {
  Spans sorted;
  for (const Trace::Span& span : spans) {
    EXPECT_TRUE(sorted.emplace(std::pair(span.step, span.index), span).second);
    EXPECT_LE(span.begin, span.end);
  }
  return sorted;
}

void TakeSteps(StepRig& rig, int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    ASSERT_TRUE(rig.executor().TrainStep(rig.Batch(step), step, kLr).ok());
  }
  ASSERT_TRUE(rig.executor().Drain().ok());
}

TEST(CudaTrace, HasEveryInstructionOfTheDeviceAfterTheHostEnqueuedIt) {
  SelfCommunicator comm;
  Trace trace(kFirst, kLast);
  StepRig rig(comm, "all", Options(&trace));
  const Trace::Clock::time_point began = Trace::Clock::now();
  TakeSteps(rig, kSteps);
  const Trace::Clock::time_point ended = Trace::Clock::now();

  const Program& program = rig.executor().program();
  const auto count = static_cast<int32_t>(program.instructions.size());
  const Spans host = Sorted(trace.spans());
  const Spans device = Sorted(trace.device_spans());
  EXPECT_EQ(device.size(), (kLast - kFirst + 1) * (count + 1));
  ASSERT_EQ(trace.device_steps().size(), kLast - kFirst + 1);
  for (const Trace::DeviceStep& step : trace.device_steps()) {
    EXPECT_GT(step.begin, began);
    EXPECT_LT(step.end, ended);
    EXPECT_GE(step.clock_error, 0);
    const Trace::Span& batch = device.at({step.step, -1});
    EXPECT_EQ(batch.begin, step.begin);
    std::map<Lane, Trace::Clock::time_point> done;
    done[Lane::kCompute] = batch.end;
    for (int32_t i = 0; i < count; ++i) {
      const Lane lane = At(program.instructions, i).lane;
      const Trace::Span& span = device.at({step.step, i});
      EXPECT_GE(span.begin, done[lane]) << i;
      EXPECT_GE(span.begin, host.at({step.step, i}).begin) << i;
      done[lane] = span.end;
    }
    EXPECT_LE(done[Lane::kCompute], step.end);
  }
}

TEST(CudaTrace, TellsHowTheDeviceSpentTheSteps) {
  SelfCommunicator comm;
  Trace trace(kFirst, kLast);
  StepRig rig(comm, "all", Options(&trace));
  TakeSteps(rig, kSteps);
  const std::vector<Trace::DeviceStep>& steps = trace.device_steps();
  ASSERT_EQ(steps.size(), 3);
  // Of the step before the first nothing is known.
  EXPECT_EQ(steps[0].idle_before, -1);
  double between = 0, inside = 0;
  for (const Trace::DeviceStep& step : steps) {
    if (step.step > kFirst) {
      EXPECT_GE(step.idle_before, 0);
      between += step.idle_before / 2;
    }
    inside += std::chrono::duration<double>(step.end - step.begin).count() / 3;
  }
  const DeviceUse use = UseOf(trace);
  EXPECT_EQ(use.steps, 3);
  EXPECT_NEAR(use.between, between, 1e-9);
  EXPECT_NEAR(use.step, inside, 1e-6);
  EXPECT_GT(use.gaps, 0);
  EXPECT_LT(use.gaps, use.step);
  // The emulated device works when all is enqueued: it is hardly ever behind.
  EXPECT_LT(use.behind_host, use.step / 10);
}

TEST(CudaTrace, AFileHasTracksOfTheDevice) {
  const TinyRuns runs("tiny");
  SetLogLevel(LogLevel::kInfo);  // which the runs of tests go without
  const absl::Status status =
      runs.Run({.sets = {"model.layers=2", "model.dim=16", "model.heads=2",
                         "data.seq=12", "data.batch=4", "run.device=cuda"},
                .out = "run",
                .until_step = 3,
                .trace = runs.Folder("trace")});
  ASSERT_TRUE(status.ok()) << std::string(status.message());
  const auto trace = nlohmann::json::parse(*ReadFile(runs.Folder("trace")));
  std::map<int, std::string> tracks;
  std::map<std::string, int64_t> slices;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") {
      tracks[event["tid"]] = event["args"]["name"];
    } else if (event["ph"] == "X") {
      ++slices[tracks.at(event["tid"])];
    }
  }
  EXPECT_GT(slices["compute"], 0);
  // And the batch of each step.
  EXPECT_EQ(slices["compute on the device"], slices["compute"] + 3);
  EXPECT_FALSE(slices.contains("network")) << "one rank exchanges nothing";
  const nlohmann::json& use = trace["otherData"]["device"][0];
  EXPECT_EQ(use["steps"], 3);
  EXPECT_GT(use["step_us"], 0);
  EXPECT_GT(use["idle_between_steps_us"], 0);
  EXPECT_GT(use["idle_in_step_us"], 0);
  EXPECT_TRUE(use.contains("behind_host_us") && use.contains("clock_error_us"));
  const std::string log = *ReadFile(RunFolder::Log(runs.Folder("run")));
  EXPECT_THAT(log, ::testing::HasSubstr("ms the device was idle for"));
}

// By hand: what is idle, and where the host is the slower one.
TEST(DeviceUse, CountsWhatNoInstructionCovers) {
  const Trace::Clock::time_point zero{};
  const auto at = [&](int64_t ms) {
    return zero + std::chrono::milliseconds(ms);
  };
  Trace trace(1, 2);
  trace.Add({.step = 1, .index = 0, .begin = at(0), .end = at(1)});
  trace.Add({.step = 1, .index = 1, .begin = at(1), .end = at(60)});
  trace.AddOnDevice({.step = 1, .begin = at(10), .end = at(100)},
                    {{.step = 1, .index = -1, .begin = at(10), .end = at(20)},
                     {.step = 1, .index = 0, .begin = at(25), .end = at(50)},
                     {.step = 1, .index = 1, .begin = at(40), .end = at(60)},
                     {.step = 1, .index = 2, .begin = at(70), .end = at(90)}});
  trace.AddOnDevice({.step = 2,
                     .begin = at(130),
                     .end = at(140),
                     .idle_before = 0.03,
                     .clock_error = 0.001},
                    {});
  const DeviceUse use = UseOf(trace);
  EXPECT_EQ(use.steps, 2);
  EXPECT_NEAR(use.step, 0.05, 1e-12);
  EXPECT_NEAR(use.gaps, (0.005 + 0.01 + 0.01 + 0.01) / 2, 1e-12);
  EXPECT_NEAR(use.between, 0.03, 1e-12);
  EXPECT_NEAR(use.behind_host, 0.02 / 2, 1e-12);
  EXPECT_EQ(use.clock_error, 0.001);
}

TEST(CudaTrace, EventsAreMadeBeforeTheFirstStepAndOnlyForATrace) {
  SelfCommunicator comm;
  const auto made_by = [&](Trace* trace, int64_t* instructions) {
    const int64_t before = simt::resources_made();
    StepRig rig(comm, "all", Options(trace));
    const int64_t made = simt::resources_made() - before;
    TakeSteps(rig, kSteps);
    EXPECT_EQ(simt::resources_made() - before, made);
    *instructions =
        static_cast<int64_t>(rig.executor().program().instructions.size());
    return made;
  };
  Trace trace(1, kSteps);
  int64_t instructions = 0;
  const int64_t without = made_by(nullptr, &instructions);
  const int64_t with = made_by(&trace, &instructions);
  // Two at each instruction and four at a step, for two steps under way.
  EXPECT_EQ(with - without, 2 * (2 * instructions + 4));
}

}  // namespace
}  // namespace delink::testing::cuda_trace_test
