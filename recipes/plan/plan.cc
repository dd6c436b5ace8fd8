#include "recipes/plan/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/sharing/report.h"
#include "recipes/plan/plan_inputs.h"
#include "recipes/record/run_peak.h"
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/dry_run/imagined_ranks.h"
#include "recipes/run/dry_run/known_rates.h"
#include "recipes/run/dry_run/switch_memory.h"
#include "recipes/run/setup/choose_device.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/stage/nodes.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/machine_file.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

absl::StatusOr<StagePlan> Describe(const Recipe& recipe,
                                   ImaginedStage& imagined,
                                   const KnownRates* rates = nullptr) {
  StageRun& stage = imagined.stage();
  StagePlan plan{.name = stage.stage().name,
                 .begin = recipe.PlannedBegin(stage.index()).step,
                 .end = recipe.PlannedEnd(stage.index()),
                 .depth = stage.depth(),
                 .blocks = stage.model().blocks(),
                 .may_end_early = stage.stage().until.measured(),
                 .sharing = DescribeSharing(stage.store()),
                 .unique_parameters = stage.store().unique_parameters(),
                 .virtual_parameters = stage.store().virtual_parameters(),
                 .active_parameters = stage.store().active_parameters(),
                 .mesh = stage.store().layout().mesh(),
                 .ranks = stage.RanksText(),
                 .micro_batch = stage.cut().micro_batch,
                 .micro_batches = stage.cut().micro_batches,
                 .flops_per_token = stage.flops_per_token()};
  const int64_t step_tokens = stage.cut().global() * stage.cut().seq;
  plan.tokens = plan.steps() * step_tokens;
  plan.flops_per_step = plan.flops_per_token * static_cast<double>(step_tokens);
  DELINK_ASSIGN_OR_RETURN(plan.pipeline, PlanPipeline(imagined, rates));
  for (const PipelineStagePlan& of : plan.pipeline.stages) {
    if (of.account.total() > plan.account.total()) {
      plan.account = of.account;
      plan.taken = of.taken;
      plan.whole = of.whole;
    }
    plan.sent_bytes = std::max(plan.sent_bytes, of.sent_bytes);
    plan.reduced_bytes = std::max(plan.reduced_bytes, of.reduced_bytes);
    plan.gathered_bytes = std::max(plan.gathered_bytes, of.gathered_bytes);
  }
  return plan;
}

// Sets the TracedTime of stages.
absl::Status TimeByTrace(const PlanOptions& options, const Recipe& recipe,
                         RunPlan& plan) {
  DELINK_ASSIGN_OR_RETURN(const StepTrace trace,
                          StepTrace::Read(options.trace));
  const StepLinks links{.network = options.link,
                        .neighbours = options.link,
                        .visits = options.link,
                        .bus = options.bus};
  const bool drains = !HasLaneThread(recipe, plan.threads);
  bool any = false;
  for (StagePlan& stage : plan.stages) {
    DELINK_ASSIGN_OR_RETURN(
        stage.traced, trace.Time(stage.pipeline, stage.mesh, links, drains));
    if (!stage.traced.has_value()) continue;
    any = true;
    // After each step, ranks of a pipeline sum up how long they waited.
    if (stage.mesh.pipeline == 1) continue;
    const int64_t bytes = 2 * SizeOf(DType::kF64);
    stage.traced->planned +=
        options.link.latency +
        options.link.BusySeconds(SentForSum(bytes, stage.mesh.ranks()));
  }
  if (any) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options.trace,
      ": none of its steps belongs to a stage of this recipe on ", plan.ranks,
      " rank(s); trace the same recipe with the same settings"));
}

// A stage that has a budget of the device with each ZeRO stage.
absl::StatusOr<std::vector<ZeroPlan>> PlanZeros(const RunEnv& env,
                                                size_t index) {
  std::vector<ZeroPlan> zeros;
  for (int64_t zero = 0; zero <= 3; ++zero) {
    const Recipe recipe = WithZero(*env.recipe, index, zero);
    RunEnv other = env;
    other.recipe = &recipe;
    other.homes[index] = AutoPlace();
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                            ImaginedStage::Create(other, index, 0));
    DELINK_ASSIGN_OR_RETURN(const StagePlan plan, Describe(recipe, *stage));
    zeros.push_back({.zero = zero,
                     .device = plan.account.total(),
                     .reduced_bytes = plan.reduced_bytes,
                     .gathered_bytes = plan.gathered_bytes});
  }
  return zeros;
}

// The rates of the plan's machine, for stages with `offload`.
absl::StatusOr<std::optional<KnownRates>> RatesOfPlan(const RunPlan& plan,
                                                      const RunEnv& env) {
  const Recipe& recipe = *env.recipe;
  if (plan.machine.has_value()) {
    return RatesIn(plan.machine->machine, plan.machine->path, recipe);
  }
  const bool any = std::ranges::any_of(
      recipe.stages, [](const Stage& stage) { return stage.offload.any(); });
  if (!any) return std::nullopt;
  return RatesFor(*env.device, recipe);
}

// Checkpoints that a run saves in steps of a stage: by the recipe's interval,
// and at the end.
int64_t SavesOf(const Recipe& recipe, const StagePlan& stage) {
  const int64_t every = recipe.run.checkpoint_every;
  if (every == 0) return 1;
  return stage.end / every - stage.begin / every + (stage.end % every != 0);
}

struct OnMachine {
  const PlannedMachine& machine;
  bool drains = false;  // TimeStep
  SimulatedTrace* trace = nullptr;
};

absl::Status Simulate(const RunEnv& env, const OnMachine& on,
                      const StageRun& stage, StagePlan& plan) {
  const SimulatedStage simulated{.plan = plan.pipeline,
                                 .layout = stage.store().layout(),
                                 .machine = on.machine,
                                 .nodes = env.nodes,
                                 .drains = on.drains,
                                 .begin = plan.begin,
                                 .trace = on.trace};
  DELINK_ASSIGN_OR_RETURN(MachineStep step,
                          SimulateStep(simulated, stage.index() > 0));
  step.steps = plan.steps();
  step.saves = SavesOf(*env.recipe, plan);
  const double peak = static_cast<double>(on.machine.ranks) *
                      on.machine.RankFlops(env.recipe->run.precision);
  if (step.seconds > 0) {
    const Executor& executor = stage.executor();
    const double tokens = plan.flops_per_step / plan.flops_per_token;
    step.tokens_per_second = tokens / step.seconds;
    step.utilization =
        tokens / static_cast<double>(executor.memory().batch.tokens()) *
        executor.model_flops_per_micro_batch() / (step.seconds * peak);
  }
  plan.simulated = std::move(step);
  return absl::OkStatus();
}

// Plans stage `index`. env.homes has the results of earlier stages and gets
// this one's. `before`: planes by rank.
absl::StatusOr<StagePlan> PlanStage(RunEnv& env, size_t index,
                                    const std::optional<KnownRates>& rates,
                                    const std::optional<OnMachine>& on,
                                    std::vector<PlaneBytes>& before) {
  const Recipe& recipe = *env.recipe;
  const OffloadRules& offload = recipe.stages[index].offload;
  std::optional<FoundPlace> found;
  if (offload.budgeted()) {
    DELINK_ASSIGN_OR_RETURN(found, FindHomes(env, 0, index, *rates));
    env.homes[index] = found->place;
  }
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ImaginedStage> stage,
                          ImaginedStage::Create(env, index, 0));
  DELINK_ASSIGN_OR_RETURN(
      StagePlan plan,
      Describe(recipe, *stage, on.has_value() ? &*rates : nullptr));
  if (on.has_value()) {
    DELINK_RETURN_IF_ERROR(Simulate(env, *on, stage->stage(), plan));
  }
  if (offload.any()) {
    DELINK_ASSIGN_OR_RETURN(plan.offload, PlanOffload(*stage, *rates, found));
  }
  const Mesh& mesh = plan.mesh;
  if (offload.device && mesh.ranks() > mesh.tensor * mesh.pipeline) {
    DELINK_ASSIGN_OR_RETURN(plan.zeros, PlanZeros(env, index));
  }
  if (index > 0) {
    DELINK_ASSIGN_OR_RETURN(const std::vector<SwitchMemory> by_rank,
                            SwitchByRank(*stage, before));
    for (const SwitchMemory& of : by_rank) {
      plan.switch_by_rank.push_back(of.most().device);
      plan.switch_planes = std::max(plan.switch_planes, of.planes.device);
    }
    plan.switch_bytes = std::ranges::max(plan.switch_by_rank);
  }
  DELINK_ASSIGN_OR_RETURN(before, PlanesByRank(stage->stage().store()));
  return plan;
}

}  // namespace

int64_t RunPlan::peak_bytes() const {
  int64_t bytes = 0;
  for (const StagePlan& stage : stages) {
    bytes = std::max({bytes, stage.account.total(), stage.switch_bytes});
  }
  return bytes;
}

double RunPlan::flops() const {
  double flops = 0;
  for (const StagePlan& stage : stages) flops += stage.flops();
  return flops;
}

double RunPlan::seconds() const {
  double seconds = 0;
  for (const StagePlan& stage : stages) {
    seconds += stage.simulated->run_seconds();
  }
  return seconds;
}

absl::StatusOr<RunPlan> PlanRun(const PlanOptions& options,
                                const ModelList& models) {
  if (!options.trace.empty() && !options.machine.empty()) {
    return absl::InvalidArgumentError(
        "--trace: takes times from a run of this machine, but --machine "
        "computes those of another; leave one of them out");
  }
  std::optional<offload::MachineRates> machine;
  std::vector<std::string> sets = options.sets;
  if (!options.machine.empty()) {
    DELINK_ASSIGN_OR_RETURN(machine, ReadMachine(options.machine));
    // The first, so that one of the command line counts and is compared.
    sets.insert(sets.begin(), "run.device=" + machine->device.kind);
  }
  DELINK_ASSIGN_OR_RETURN(const Recipe read,
                          ReadRecipe(options.recipe, sets, KindsOf(models)));
  const int64_t ranks = options.ranks > 0 ? options.ranks : RanksOf(read);
  std::optional<PlannedMachine> planned;
  if (machine.has_value()) {
    DELINK_ASSIGN_OR_RETURN(
        planned, PlaceOnMachine(options.machine, *machine, read.run.device,
                                ranks, options.ranks_per_node));
  }
  DELINK_ASSIGN_OR_RETURN(const Recipe fitted, CheckWorld(read, ranks, true));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, WithVocab(fitted));

  RunPlan plan{.recipe = options.recipe,
               .model = std::string(recipe.model->kind()),
               .vocab = recipe.model->vocab,
               .ranks = ranks,
               .device = KindOfChoice(recipe.run.device),
               .threads = ThreadsOf(recipe.run, options, planned, ranks),
               .precision = recipe.run.precision,
               .machine = planned};
  const WithThreads threads(plan.threads);
  const std::unique_ptr<Device> device = NewMetaDevice(plan.device);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                          RunModel::Create(recipe, models));
  ImaginedRanks world(static_cast<int>(ranks));
  RunEnv env = model->On(*device, world, world);
  env.nodes = NodesOf(
      ranks, planned ? planned->ranks_per_node : options.ranks_per_node);
  DELINK_RETURN_IF_ERROR(CheckNodes(recipe, env.nodes));
  env.homes.resize(recipe.stages.size());
  DELINK_ASSIGN_OR_RETURN(const std::optional<KnownRates> rates,
                          RatesOfPlan(plan, env));
  std::unique_ptr<SimulatedTrace> trace;
  if (!options.trace_out.empty()) {
    DELINK_ASSIGN_OR_RETURN(trace, SimulatedTrace::Create(options.trace_out));
  }
  std::optional<OnMachine> on;
  if (planned.has_value()) {
    on.emplace(OnMachine{.machine = *planned,
                         .drains = !HasLaneThread(recipe, plan.threads),
                         .trace = trace.get()});
  }
  std::vector<PlaneBytes> before;
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(StagePlan stage,
                            PlanStage(env, i, rates, on, before));
    if (stage.offload.has_value() && machine.has_value()) {
      stage.offload->host_memory = machine->host_bytes;
    }
    plan.stages.push_back(std::move(stage));
  }
  if (trace != nullptr) DELINK_RETURN_IF_ERROR(trace->Finish());
  if (!options.trace.empty()) {
    DELINK_RETURN_IF_ERROR(TimeByTrace(options, recipe, plan));
  }
  return plan;
}

void FindPeak(RunPlan& plan) {
  if (plan.machine.has_value()) {
    plan.peak_flops = static_cast<double>(plan.ranks) *
                      plan.machine->RankFlops(plan.precision);
    return;
  }
  const absl::StatusOr<std::unique_ptr<Device>> device =
      NewDeviceOf(plan.device);
  if (!device.ok()) {
    plan.no_peak = std::string(device.status().message());
    return;
  }
  const WithThreads threads(plan.threads);
  plan.peak_flops =
      static_cast<double>(plan.ranks) *
      RankPeak(**device, plan.precision, plan.threads, /*anew=*/false);
  if (plan.peak_flops == 0) {
    plan.no_peak = "the device has no room to measure it";
  }
}

}  // namespace delink
