#include "tools/bench/step_suite.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "layers/kernels/timed/timed.h"
#include "recipes/record/progress.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/setup/choose_device.h"
#include "recipes/run/stage/make_optimizer.h"
#include "recipes/run/stage/stage_run.h"
#include "tools/bench/step_account.h"

namespace delink::bench {
namespace {

constexpr double kLr = 1e-4;
constexpr int64_t kWarmUp = 2;       // steps
constexpr int64_t kNotedOnGpu = 10;  // steps: events of each kernel are kept

// Resets the peak for the next PeakResidentBytes, if the system allows it.
void ForgetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
}

HostBatch RandomBatch(const BatchCut& cut, int64_t ids, int64_t step) {
  const RngKey key = Fold(KeyFromSeed(7), static_cast<uint64_t>(step));
  HostBatch batch;
  uint64_t counter = 0;
  const auto token = [&] {
    return static_cast<int32_t>(Philox(key, counter++, 0)[0] %
                                static_cast<uint64_t>(ids));
  };
  for (int64_t i = 0; i < cut.local(); ++i) {
    batch.samples.push_back(step * cut.local() + i);
    for (int64_t t = 0; t < cut.seq; ++t) {
      batch.inputs.push_back(token());
      batch.targets.push_back(token());
    }
  }
  return batch;
}

// Marks the host's progress through instructions in the record of kernels.
class MarkingWatch final : public StepWatch {
 public:
  explicit MarkingWatch(KernelCalls& calls) : calls_(calls) {}
  void Begin(Lane, int64_t, std::string_view) override { calls_.Mark(); }
  double Vote() override { return 0; }

 private:
  KernelCalls& calls_;
};

// A stage as in a run, on a device that may record its kernels.
struct Rig {
  Recipe recipe;
  KernelCalls calls;
  MarkingWatch watch{calls};
  Trace trace{1, std::numeric_limits<int64_t>::max()};
  std::unique_ptr<Device> device;
  ParamRegistry registry;
  std::unique_ptr<Sequential> model;
  std::unique_ptr<SlabOptimizer> optimizer, host_optimizer;
  SelfCommunicator world, network;
  std::unique_ptr<StageRun> stage;
};

bool Offloads(const Recipe& recipe) {
  return recipe.stages.front().offload.any();
}

absl::StatusOr<std::unique_ptr<Rig>> MakeRig(const StepCase& step,
                                             const ModelList& models,
                                             DeviceKind device, bool noted) {
  auto rig = std::make_unique<Rig>();
  DELINK_ASSIGN_OR_RETURN(rig->recipe, RecipeOf(step, models));
  DELINK_ASSIGN_OR_RETURN(rig->device, NewDeviceOf(device));
  if (noted) rig->device = NewTimedDevice(std::move(rig->device), rig->calls);
  rig->model = BuildModel(models, Scope(rig->registry), *rig->recipe.model);
  DELINK_ASSIGN_OR_RETURN(rig->optimizer,
                          MakeOptimizer(rig->recipe, rig->registry));
  DELINK_ASSIGN_OR_RETURN(rig->host_optimizer,
                          MakeOptimizer(rig->recipe, rig->registry));
  RunEnv env{.recipe = &rig->recipe,
             .device = rig->device.get(),
             .model = rig->model.get(),
             .registry = &rig->registry,
             .optimizer = rig->optimizer.get(),
             .host_optimizer = rig->host_optimizer.get(),
             .world = &rig->world,
             .network = &rig->network,
             // As in a run, copies overlap the device's computation.
             .lane_threads = Offloads(rig->recipe),
             .watch = noted ? &rig->watch : nullptr,
             .trace = noted ? &rig->trace : nullptr};
  DELINK_ASSIGN_OR_RETURN(env.homes, AgreeOnHomes(env, 0));
  DELINK_ASSIGN_OR_RETURN(rig->stage, StageRun::Create(env, 0));
  rig->stage->store().InitWeights(1);
  return rig;
}

bool Enough(const std::vector<double>& seconds, const StepOptions& options) {
  const auto steps = static_cast<int64_t>(seconds.size());
  if (options.exactly > 0) return steps >= options.exactly;
  double all = 0;
  for (const double one : seconds) all += one;
  return steps >= options.least && all >= options.seconds;
}

// Runs enough steps; returns the last one's loss.
absl::StatusOr<double> TakeSteps(Rig& rig, const StepOptions& options,
                                 int64_t distinct,
                                 std::vector<double>* seconds) {
  using Clock = std::chrono::steady_clock;
  const int64_t vocab = rig.recipe.model->vocab;
  const int64_t ids = distinct > 0 ? std::min(distinct, vocab) : vocab;
  double loss = 0;
  for (int64_t step = 1; !Enough(*seconds, options); ++step) {
    const HostBatch batch = RandomBatch(rig.stage->cut(), ids, step);
    if (step == kWarmUp + 1) rig.calls.Clear();
    const Clock::time_point start = Clock::now();
    DELINK_ASSIGN_OR_RETURN(const StepResult result,
                            rig.stage->executor().TrainStep(batch, step, kLr));
    rig.calls.Mark();
    if (step > kWarmUp) seconds->push_back(Since(start));
    loss = result.loss;
  }
  DELINK_RETURN_IF_ERROR(rig.stage->executor().Drain());
  rig.calls.Settle();
  return loss;
}

// Measures memory, the loss and the time of a step. If kernels were recorded,
// also sets parts and kernels, as parts of the recorded steps.
absl::Status MeasureRig(Rig& rig, const Machine& machine,
                        const StepOptions& options, StepMeasure* measure) {
  const ParamStore& store = rig.stage->store();
  measure->unique_parameters = store.unique_parameters();
  measure->virtual_parameters = store.virtual_parameters();
  measure->active_parameters = store.active_parameters();
  measure->memory = rig.stage->account();
  StepRecord record{.trace = &rig.trace,
                    .calls = &rig.calls,
                    .store = &store,
                    .first = kWarmUp + 1};
  DELINK_ASSIGN_OR_RETURN(
      measure->loss,
      TakeSteps(rig, options, measure->step.distinct, &record.seconds));
  measure->seconds = Summarise(record.seconds);
  const DeviceMemory memory = rig.device->memory();
  measure->device_bytes = memory.total - memory.free;
  measure->allocated_bytes = rig.device->ledgers().allocated.highest();
  if (!rig.trace.spans().empty()) AccountForTime(record, machine, measure);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepMeasure> MeasureStep(const StepCase& step, DeviceKind device,
                                        const ModelList& models,
                                        const Machine& machine,
                                        const StepOptions& options) {
  StepMeasure measure{.step = step};
  ForgetPeak();
  measure.resident_before = ResidentBytes();
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, RecipeOf(step, models));
  // The record of kernels needs a single thread.
  const bool notes = !Offloads(recipe);
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Rig> rig,
                          MakeRig(step, models, device, notes));
  StepOptions first = options;
  if (notes && IsCuda(device) && first.exactly == 0) {
    first.exactly = kNotedOnGpu;
  }
  DELINK_RETURN_IF_ERROR(MeasureRig(*rig, machine, first, &measure));
  if (notes && IsCuda(device)) {
    // One after the other, since two do not fit.
    rig.reset();
    DELINK_ASSIGN_OR_RETURN(rig,
                            MakeRig(step, models, device, /*noted=*/false));
    DELINK_RETURN_IF_ERROR(MeasureRig(*rig, machine, options, &measure));
  }
  measure.peak_resident = PeakResidentBytes();
  measure.tokens_per_s =
      static_cast<double>(step.batch * step.seq) / measure.seconds.median;
  const DType dtype = rig->stage->store().options().dtype;
  const MatmulPeak* const peak = machine.PeakOf(dtype);
  if (peak != nullptr) {
    measure.peak = measure.flops / measure.seconds.median / peak->flops_per_s;
  }
  for (const KernelShare& kernel : measure.kernels) {
    measure.light += machine.Roof(kernel.work, dtype) / measure.seconds.median;
  }
  return measure;
}

}  // namespace delink::bench
