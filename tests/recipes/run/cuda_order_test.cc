// On the emulated device with a clock of its own, every instruction of real
// steps begins and ends exactly when it does in the simulated steps, so all
// events come in the simulated order. The costs of copies follow from their
// planned bytes; those of the other instructions are what they took, without
// their waits, in the first step. Lanes that are ready for the bus at the same
// time take turns in their own order, which is that of their streams.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/device/cuda/stream.h"
#include "framework/step/time/step_time.h"
#include "framework/step/time/trace.h"
#include "recipes/run/stage/stage_run.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/recipes/run/recipe_env.h"
#include "tests/testing/simt/simt.h"
#include "tests/testing/source_path.h"

namespace delink::testing::cuda_order_test {
namespace {

constexpr int64_t kVocab = 61;
constexpr int64_t kSteps = 2;
// All durations are multiples of this many nanoseconds. Events are read with
// less than half of it as an error, in single precision.
constexpr double kUnit = 8;
// Smaller copies are of batches, control and results, which simulated steps do
// not have.
constexpr int64_t kSmall = 1024;
constexpr char kHostUpdate[] = "update on the host";

// A copy moves a byte in a nanosecond.
int64_t Nanoseconds(const simt::Operation& of) {
  if (of.way != simt::Way::kNone) return of.bytes < kSmall ? 0 : of.bytes;
  if (of.name == kHostUpdate) return 30'000;
  if (of.name == "kernel") return 1000 * (1 + of.blocks);
  return of.name.starts_with("Matmul") ? 5000 : 0;
}

// Updates on the host, which take time in the stream of their lane: nothing
// else is there while the host is at work.
class TimedUpdates final : public SlabOptimizer {
 public:
  explicit TimedUpdates(SlabOptimizer& of) : of_(of) {}
  std::vector<StateSpec> states() const override { return of_.states(); }
  int64_t ScratchBytes(const ParamStore& store) const override {
    return of_.ScratchBytes(store);
  }
  void Update(Stream& stream, ParamStore& store, int slab,
              const UpdateControl* control, int64_t update) override {
    simt::Enqueue(cuda::InfoOf(stream).handle, kHostUpdate, [] {});
    of_.set_scratch(scratch());
    of_.Update(stream, store, slab, control, update);
  }

 private:
  SlabOptimizer& of_;
};

absl::Status TakeSteps(const std::vector<std::string>& sets, Trace* trace,
                       Program* program) {
  SelfCommunicator comm;
  DELINK_ASSIGN_OR_RETURN(
      const std::unique_ptr<RecipeEnv> recipe,
      NewRecipeEnv(SourcePath("recipes/tiny.toml"), sets, comm));
  DELINK_ASSIGN_OR_RETURN(recipe->device, NewCudaDevice(0));
  RunEnv env = recipe->model->On(*recipe->device, comm, *recipe->network);
  TimedUpdates updates(*env.host_optimizer);
  env.host_optimizer = &updates;
  env.trace = trace;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, 0));
  stage->store().InitWeights(1);
  *program = stage->executor().program();
  for (int64_t step = 1; step <= kSteps; ++step) {
    DELINK_RETURN_IF_ERROR(
        stage->executor()
            .TrainStep(ConstantBatch(stage->cut()), step, 1e-3)
            .status());
  }
  return stage->executor().Drain();
}

// By step and instruction, in nanoseconds since the step's begin.
std::vector<std::vector<Interval>> RealTimes(const Trace& trace) {
  const auto rounded = [](Trace::Clock::duration time) {
    return kUnit * std::round(1e9 * Seconds(time) / kUnit);
  };
  std::vector<std::vector<Interval>> times(
      kSteps, std::vector<Interval>(trace.programs().front().size()));
  for (const Trace::Span& span : trace.device_spans()) {
    if (span.index < 0) continue;  // the batch's copy
    const Trace::DeviceStep& step = At(trace.device_steps(), span.step - 1);
    At(At(times, span.step - 1), span.index) = {
        rounded(span.begin - step.begin), rounded(span.end - step.begin)};
  }
  return times;
}

const char* const kHomes[] = {
    "",
    "resident=0.5",
    "weights='host'",
    "state='host'",
    "weights='host',gradients='host',state='host',activations='host'",
    "weights='host',gradients='host',update='host'",
    "rows=[{match='*/mlp/*',update='host'},"
    "{match='*/attn/*',gradients='host'}],state='host'",
};

// Offloaded as `homes` says, with micro-batches in this order. Adds the lanes
// that there are.
void ExpectSimulatedTimes(const std::string& homes, const std::string& order,
                          std::set<std::string>* lanes) {
  Trace trace(1, kSteps);
  Program program;
  const absl::Status status = TakeSteps(
      {"model.layers=2", "model.dim=16", "model.heads=2", "model.tied=false",
       absl::StrCat("model.vocab=", kVocab), "data.seq=12", "data.batch=6",
       "run.micro_batch=2", "run.device=cuda", "run.order=" + order,
       "stage.0.share=none", absl::StrCat("stage.0.offload={", homes, "}")},
      &trace, &program);
  ASSERT_TRUE(status.ok()) << std::string(status.message());

  const std::vector<Trace::Entry>& entries = trace.programs().front();
  const auto real = RealTimes(trace);
  const Costs costs = [&](const RankProgram&, int32_t index) -> Cost {
    const Trace::Entry& of = At(entries, index);
    const auto bytes = static_cast<double>(of.bytes);
    if (IsOverBus(of.at.lane)) return {.time = bytes, .busy = bytes};
    const Interval& took = At(real.front(), index);
    return {.time = took.end - took.begin};
  };
  const auto simulated =
      TimeStep({{{.rank = 0, .program = &program}}}, costs, /*drains=*/false);
  ASSERT_TRUE(simulated.ok()) << simulated.status();

  for (size_t i = 0; i < entries.size(); ++i) {
    const Lane lane = entries[i].at.lane;
    lanes->insert(ToString(lane));
    for (int64_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(absl::StrCat("step ", step + 1, ", ", ToString(lane), ", ",
                                entries[i].name));
      const JointTimes& times = simulated->times;
      const Interval& of = (step == 0 ? times.first : times.second)[0][i];
      const double zero = step == 0 ? 0 : simulated->begin;
      // A copy's first event is when its lane is ready, not the bus.
      if (!IsOverBus(lane)) EXPECT_EQ(At(real, step)[i].begin, of.begin - zero);
      EXPECT_EQ(At(real, step)[i].end, of.end - zero);
    }
  }
}

TEST(CudaOrder, OfRealStepsIsThatOfSimulatedOnes) {
  simt::Options options = simt::CurrentOptions();
  options.nanoseconds = Nanoseconds;
  const simt::ScopedOptions clock(options);
  std::set<std::string> lanes;
  for (const char* const order : {"layer", "micro_batch"}) {
    for (const char* const homes : kHomes) {
      SCOPED_TRACE(absl::StrCat(order, ": ", homes));
      ExpectSimulatedTimes(homes, order, &lanes);
    }
  }
  EXPECT_EQ(absl::StrJoin(lanes, " "),
            "compute host in out updates updates-in updates-out");
}

}  // namespace
}  // namespace delink::testing::cuda_order_test
