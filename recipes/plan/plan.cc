#include "recipes/plan/plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus/corpus.h"
#include "framework/base/status_macros.h"
#include "framework/sharing/report.h"
#include "layers/kernels/cpu/threads.h"
#include "recipes/record/run_peak.h"
#include "recipes/run/choose_device.h"
#include "recipes/run/imagined_ranks.h"
#include "recipes/run/prepare.h"
#include "recipes/run/stage_run.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// The ranks of a recipe that says how many; else one.
int64_t RanksOf(const Recipe& recipe) {
  ParallelConfig parallel = recipe.stages.front().parallel;
  parallel.data = std::max<int64_t>(1, parallel.data);
  return parallel.ranks();
}

absl::StatusOr<Recipe> WithVocab(const Recipe& recipe) {
  if (recipe.model->vocab > 0) return recipe;
  const absl::StatusOr<Corpus> corpus = Corpus::Open(
      recipe.data.Sources().front().train, {.statistics_only = true});
  if (!corpus.ok()) {
    return absl::Status(
        corpus.status().code(),
        absl::StrCat(std::string(corpus.status().message()),
                     "; a plan needs no more of the corpus than its "
                     "vocabulary: to do without, add --set model.vocab=N"));
  }
  return FitVocab(recipe, *corpus);
}

// What the network lane moves in a step.
void CountExchanges(const ParamStore& store, StagePlan& plan) {
  for (const Instruction& at : plan.program.instructions) {
    if (at.op != Op::kReduce && at.op != Op::kFetch) continue;
    const int slab = store.SlabOf(at.slab);
    const int ranks = GroupSize(store, slab);
    if (ranks == 1) continue;
    const Plane plane = at.op == Op::kFetch ? Plane::kWeight : Plane::kGradient;
    const int64_t bytes = store.slab(slab).ShardElements(ranks) * ranks *
                          SizeOf(store.dtype(plane));
    if (at.op == Op::kReduce) plan.reduced_bytes += bytes;
    // The gradient where updates are whole or one rank's, and the weights
    // where they are not everybody's.
    const PlacementRow& row = store.placement(slab);
    const bool gathers = at.op == Op::kFetch
                             ? row.state.sharded
                             : !row.state.sharded || row.owner != kNoOwner;
    if (gathers) plan.gathered_bytes += bytes;
  }
}

// Of each rank.
int ThreadsOf(const RunConfig& run, const PlanOptions& options, int64_t ranks) {
  if (run.threads > 0) return static_cast<int>(run.threads);
  if (options.threads > 0) return static_cast<int>(options.threads);
  return static_cast<int>(std::max<int64_t>(1, cpu::MaxThreads() / ranks));
}

// The CPU's kernels have scratch for each thread that they may use.
class WithThreads {
 public:
  explicit WithThreads(int threads) : before_(cpu::MaxThreads()) {
    cpu::SetThreads(threads);
  }
  ~WithThreads() { cpu::SetThreads(before_); }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;

 private:
  const int before_;
};

// What is taken now.
std::vector<MemoryLedger::Entry> Taken(const DeviceLedgers& ledgers) {
  std::vector<MemoryLedger::Entry> taken;
  for (const MemoryLedger* const ledger : {&ledgers.allocated, &ledgers.own}) {
    for (const MemoryLedger::Entry& entry : ledger->entries()) {
      if (entry.bytes > 0) taken.push_back(entry);
    }
  }
  return taken;
}

StagePlan Describe(const Recipe& recipe, StageRun& stage) {
  StagePlan plan{.name = stage.stage().name,
                 .begin = recipe.PlannedBegin(stage.index()).step,
                 .end = recipe.PlannedEnd(stage.index()),
                 .depth = stage.depth(),
                 .blocks = stage.model().blocks(),
                 .may_end_early = stage.stage().until.measured(),
                 .sharing = DescribeSharing(stage.store()),
                 .unique_parameters = stage.store().unique_parameters(),
                 .virtual_parameters = stage.store().virtual_parameters(),
                 .account = stage.account(),
                 .taken = Taken(stage.store().device().ledgers()),
                 .micro_batch = stage.cut().micro_batch,
                 .micro_batches = stage.cut().micro_batches,
                 .program = stage.executor().program(),
                 .flops_per_token = stage.flops_per_token()};
  const int64_t step_tokens = stage.cut().global() * stage.cut().seq;
  plan.tokens = plan.steps() * step_tokens;
  plan.flops_per_step = plan.flops_per_token * static_cast<double>(step_tokens);
  CountExchanges(stage.store(), plan);
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

absl::StatusOr<RunPlan> PlanRun(const PlanOptions& options,
                                const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(
      const Recipe read,
      ReadRecipe(options.recipe, options.sets, KindsOf(models)));
  const int64_t ranks = options.ranks > 0 ? options.ranks : RanksOf(read);
  DELINK_ASSIGN_OR_RETURN(const Recipe fitted, CheckWorld(read, ranks, true));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, WithVocab(fitted));

  RunPlan plan{.recipe = options.recipe,
               .model = std::string(recipe.model->kind()),
               .vocab = recipe.model->vocab,
               .ranks = ranks,
               .device = KindOfChoice(recipe.run.device),
               .threads = ThreadsOf(recipe.run, options, ranks),
               .precision = recipe.run.precision};
  const WithThreads threads(plan.threads);
  const std::unique_ptr<Device> device = NewMetaDevice(plan.device);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                          RunModel::Create(recipe, models));
  ImaginedRanks world(static_cast<int>(ranks));
  ImaginedRanks network(static_cast<int>(ranks));
  const RunEnv env = model->On(*device, world, network);
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                            StageRun::Create(env, i));
    StagePlan described = Describe(recipe, *stage);
    if (i > 0) {
      described.switch_bytes =
          plan.stages.back().account.planes() + described.account.planes();
    }
    plan.stages.push_back(std::move(described));
  }
  return plan;
}

void FindPeak(RunPlan& plan) {
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
