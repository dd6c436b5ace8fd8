#include "recipes/run/stage/stage_run.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/sharing/delink.h"
#include "framework/sharing/resolve.h"
#include "layers/ops/accumulate.h"
#include "offload/plan/place.h"
#include "recipes/run/stage/make_optimizer.h"
#include "recipes/run/stage/nodes.h"
#include "recipes/run/stage/stage_layout.h"

namespace delink {
namespace {

// From here on the device allocates at most the stage's budget.
void LimitDevice(const RunEnv& env, size_t stage) {
  env.device->SetLimit(env.recipe->stages[stage].offload.device);
}

bool SameVisits(const Recipe& recipe, size_t a, size_t b) {
  return recipe.Batch(a) == recipe.Batch(b) &&
         recipe.MicroBatch(a) == recipe.MicroBatch(b) &&
         recipe.ExpertRoom(a) == recipe.ExpertRoom(b) &&
         recipe.stages[a].parallel.expert_overlap ==
             recipe.stages[b].parallel.expert_overlap &&
         recipe.RecomputeOf(a) == recipe.RecomputeOf(b);
}

bool SameRanks(const Recipe& recipe, size_t a, size_t b) {
  return SameMesh(recipe.stages[a].parallel, recipe.stages[b].parallel);
}

}  // namespace

bool TakesLayout(const Recipe& recipe, size_t from, size_t to) {
  return !SameRanks(recipe, from, to) || !SameVisits(recipe, from, to);
}

BatchShape BatchShapeOf(const Recipe& recipe, size_t stage) {
  return {.micro_batch = recipe.MicroBatch(stage),
          .seq = recipe.data.seq,
          .masked = recipe.data.masked(),
          .all_counted = !recipe.data.masked(),
          .deterministic = recipe.run.deterministic,
          .remake = recipe.RecomputeOf(stage) != Recompute::kNone,
          .expert_room = recipe.ExpertRoom(stage),
          .expert_overlap = *recipe.stages[stage].parallel.expert_overlap};
}

std::vector<int> RunEnv::NodesOfRanks() const {
  return nodes.empty() ? NodesOf(world->size(), 0) : nodes;
}

absl::StatusOr<SharingMap> SharingOf(const RunEnv& env, size_t stage) {
  return ResolveSharing(env.recipe->stages[stage].share, *env.registry,
                        env.model->blocks(), env.recipe->Visited(stage));
}

Growth GrowthInto(const Recipe& recipe, size_t stage) {
  return {.policy = recipe.stages[stage].grow.value_or(GrowPolicy::kCopy),
          .share = recipe.stages[stage - 1].share,
          .seed = static_cast<uint64_t>(recipe.run.seed)};
}

absl::StatusOr<std::unique_ptr<StageRun>> StageRun::Create(
    const RunEnv& env, size_t index, const SharingMap* sharing) {
  std::unique_ptr<StageRun> run(new StageRun(env, index));
  LimitDevice(env, index);
  SharingMap map;
  if (sharing != nullptr) {
    map = *sharing;
  } else {
    DELINK_ASSIGN_OR_RETURN(map, SharingOf(env, index));
  }
  DELINK_RETURN_IF_ERROR(run->MakeStore(map));
  DELINK_RETURN_IF_ERROR(run->MakeExecutor(index));
  return run;
}

absl::StatusOr<std::unique_ptr<StageRun>> StageRun::CreateLaidOut(
    const RunEnv& env, size_t index, size_t layout) {
  std::unique_ptr<StageRun> run(new StageRun(env, index));
  LimitDevice(env, layout);
  if (!SameRanks(*env.recipe, index, layout)) run->mesh_of_ = layout;
  DELINK_ASSIGN_OR_RETURN(const SharingMap map, SharingOf(env, index));
  DELINK_RETURN_IF_ERROR(run->MakeStore(map));
  DELINK_RETURN_IF_ERROR(run->MakeExecutor(layout));
  return run;
}

absl::StatusOr<std::unique_ptr<StageRun>> StageRun::Switch(
    const RunEnv& env, std::unique_ptr<StageRun> from, size_t index) {
  DELINK_RETURN_IF_ERROR(from->executor_->Drain());
  std::unique_ptr<StageRun> run(new StageRun(env, index));
  run->room_ = from->executor_->expert_room();
  from->executor_.reset();
  env.device->Trim();
  LimitDevice(env, index);
  DELINK_ASSIGN_OR_RETURN(const SharingMap map, SharingOf(env, index));
  DELINK_RETURN_IF_ERROR(run->MakeStore(map));
  DELINK_RETURN_IF_ERROR(Delink(*from->store_, *run->store_, run->stage().state,
                                *env.world, GrowthInto(*env.recipe, index)));
  from.reset();
  env.device->Trim();
  DELINK_RETURN_IF_ERROR(run->MakeExecutor(index));
  return run;
}

std::string StageRun::RanksText() const {
  const Mesh& mesh = store_->layout().mesh();
  return delink::RanksText(mesh, env_.NodesOfRanks());
}

double StageRun::flops_per_token() const {
  return executor_->flops_per_micro_batch() /
         static_cast<double>(executor_->memory().batch.tokens());
}

bool StageRun::shares() const {
  const int blocks = env_.model->blocks();
  for (const std::string& part : PartsOf(*env_.registry, blocks)) {
    for (const int sharers : Sharers(store_->sharing(), part, blocks)) {
      if (sharers > 1) return true;
    }
  }
  return false;
}

absl::Status StageRun::MakeStore(const SharingMap& sharing) {
  const RunConfig& run = env_.recipe->run;
  std::shared_ptr<const Layout> layout;
  if (env_.shared != nullptr) layout = env_.shared->layout;
  if (layout == nullptr) {
    layout = std::make_shared<const Layout>(LayoutOf(env_, mesh_of_, sharing));
  }
  if (env_.shared != nullptr) env_.shared->layout = layout;
  DELINK_ASSIGN_OR_RETURN(
      store_,
      ParamStore::Create(*env_.device, std::move(layout), env_.world->rank(),
                         {.dtype = run.precision,
                          .states = env_.optimizer->states(),
                          .master = run.master,
                          .bf16_gradients = run.gradients == DType::kBF16}));
  return absl::OkStatus();
}

absl::Status StageRun::MoveStore(size_t layout) {
  mesh_of_ = layout;
  env_.shared = nullptr;  // of the layout before
  const std::unique_ptr<ParamStore> from = std::move(store_);
  DELINK_RETURN_IF_ERROR(MakeStore(from->sharing()));
  return Delink(*from, *store_, StatePolicy::kCopy, *env_.world);
}

absl::Status StageRun::TakeLayout(size_t index) {
  const bool moves = !SameRanks(*env_.recipe, mesh_of_, index);
  if (!moves && SameVisits(*env_.recipe, index_, index)) {
    return absl::OkStatus();
  }
  DELINK_RETURN_IF_ERROR(executor_->Drain());
  room_ = executor_->expert_room();
  executor_.reset();
  env_.device->Trim();
  LimitDevice(env_, index);
  if (moves) {
    DELINK_RETURN_IF_ERROR(MoveStore(index));
    env_.device->Trim();
  }
  return MakeExecutor(index);
}

// `layout`: the stage whose micro-batches, recompute and placement of
// activations it has.
absl::Status StageRun::MakeExecutor(size_t layout) {
  const Recipe& recipe = *env_.recipe;
  DELINK_ASSIGN_OR_RETURN(const ParamRules rules,
                          RulesOf(recipe, *env_.registry, index_));
  env_.optimizer->set_rules(rules);
  env_.host_optimizer->set_rules(rules);
  const RunConfig& run = recipe.run;
  const Mesh& mesh = store_->layout().mesh();
  cut_ = {.rank = mesh.PlaceOf(env_.world->rank())[Axis::kData],
          .ranks = mesh.data,
          .micro_batches = recipe.Accumulation(layout),
          .micro_batch = recipe.MicroBatch(layout),
          .seq = recipe.data.seq,
          .masked = recipe.data.masked()};
  BatchShape batch = BatchShapeOf(recipe, layout);
  if (batch.expert_room > 0) {
    batch.expert_room = std::max(batch.expert_room, room_) * env_.more_room;
  }
  const Executor::Options options{
      .batch = batch,
      .micro_batches = static_cast<int32_t>(cut_.micro_batches),
      .planner = PlannerOf(env_, mesh_of_, layout, store_->layout()),
      .recompute =
          PlaceActivations(store_->layout(), recipe.stages[layout].offload,
                           FoundOf(env_, layout))
              .recomputed,
      .ahead = FoundOf(env_, mesh_of_).ahead,
      .seed = static_cast<uint64_t>(run.seed),
      .clip = recipe.optimizer.clip,
      .clip_value = recipe.optimizer.clip_value,
      .lane_threads = env_.lane_threads,
      .probes = shares() && recipe.ProbeEvery(layout) > 0,
      .shared_plan = env_.shared != nullptr ? &env_.shared->plan : nullptr,
      .measured = env_.measured.get()};
  DELINK_ASSIGN_OR_RETURN(
      executor_, Executor::Create({.device = env_.device,
                                   .model = env_.model,
                                   .store = store_.get(),
                                   .optimizer = env_.optimizer,
                                   .host_optimizer = env_.host_optimizer,
                                   .compute = env_.world,
                                   .network = env_.network,
                                   .accumulate = Accumulate,
                                   .watch = env_.watch,
                                   .trace = env_.trace,
                                   .bus = env_.bus},
                                  options));
  return absl::OkStatus();
}

}  // namespace delink
