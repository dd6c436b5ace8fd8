#include "recipes/run/stage/stage_layout.h"

#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "framework/base/check.h"
#include "framework/step/plan/assemble.h"
#include "framework/step/plan/basic.h"
#include "framework/step/plan/measure.h"
#include "layers/ops/accumulate.h"
#include "offload/plan/place.h"
#include "offload/plan/residency.h"
#include "offload/plan/stored_slots.h"
#include "parallel/pipeline/cut_layers.h"
#include "parallel/pipeline/interleaved.h"
#include "parallel/pipeline/one_f_one_b.h"
#include "parallel/pipeline/zero_bubble.h"

namespace delink {
namespace {

bool HasSequence(const ParallelConfig& parallel) {
  return parallel.tensor > 1 && *parallel.sequence;
}

bool RecomputesBlocks(const Recipe& recipe, size_t stage) {
  return recipe.RecomputeOf(stage) == Recompute::kBlock;
}

// What each layer computes forward and backward, in FLOPs.
std::vector<double> CostsOf(const RunEnv& env, size_t stage,
                            const SharingMap& sharing) {
  const Recipe& recipe = *env.recipe;
  const ParallelConfig& parallel = recipe.stages[stage].parallel;
  const std::vector<LayerPlan> layers =
      MeasureLayers(*env.model, *env.registry,
                    {.device = env.device->kind(),
                     .visited = sharing.visited,
                     .dtype = recipe.run.precision,
                     .bf16_gradients = recipe.run.gradients == DType::kBF16,
                     .batch = BatchShapeOf(recipe, stage),
                     .accumulate = Accumulate,
                     .mesh = MeshOf(parallel),
                     .rank = 0,
                     .sequence = HasSequence(parallel),
                     .known = env.measured.get()});
  std::vector<double> costs;
  for (size_t at = 0; at < layers.size(); ++at) {
    const bool block = at > 0 && at + 1 < layers.size();
    const double forwards = block && RecomputesBlocks(recipe, stage) ? 2 : 1;
    costs.push_back(forwards * layers[at].flops + layers[at].backward_flops);
  }
  return costs;
}

int64_t Sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

// By place; empty without a pipeline.
std::vector<int> ChunksOf(const RunEnv& env, size_t stage,
                          const SharingMap& sharing) {
  const ParallelConfig& parallel = env.recipe->stages[stage].parallel;
  if (parallel.pipeline == 1) return {};
  // `layers` is for the stage itself, not for an old stage in its layout.
  const int64_t depth = std::ssize(sharing.VisitedOf(env.model->blocks()));
  if (!parallel.layers.empty() && Sum(parallel.layers) == depth) {
    return CutByBlocks(parallel.layers);
  }
  return CutByCost(CostsOf(env, stage, sharing),
                   static_cast<int>(parallel.pieces()));
}

}  // namespace

AutoPlace FoundOf(const RunEnv& env, size_t stage) {
  return stage < env.homes.size() ? env.homes[stage] : AutoPlace();
}

Layout LayoutOf(const RunEnv& env, size_t stage, const SharingMap& sharing) {
  const ParallelConfig& parallel = env.recipe->stages[stage].parallel;
  Mesh mesh = MeshOf(parallel);
  DELINK_CHECK_EQ(env.world->size(), mesh.ranks()) << "CheckWorld comes first";
  if (parallel.dispatch == ExpertDispatch::kDeduplicated) {
    mesh.expert_nodes = ExpertNodes(mesh, env.nodes);
  }
  Layout layout =
      Layout::Create(*env.registry, env.model->blocks(), sharing,
                     {.mesh = mesh,
                      .chunks = ChunksOf(env, stage, sharing),
                      .zero = static_cast<int>(parallel.zero),
                      .shard = static_cast<int>(parallel.shard),
                      .reduces_micro_batches =
                          parallel.reduce == GradientReduction::kMicroBatch,
                      .whole_tensors = env.optimizer->whole_tensors(),
                      .sequence = HasSequence(parallel)});
  const OffloadRules& offload = env.recipe->stages[stage].offload;
  if (!offload.any()) return layout;
  return layout.WithTiers(PlaceSlabs(layout, offload, FoundOf(env, stage)));
}

static Planner BarePlannerOf(const Recipe& recipe, size_t stage,
                             size_t layout) {
  const bool recompute = RecomputesBlocks(recipe, layout);
  const ParallelConfig& parallel = recipe.stages[stage].parallel;
  if (parallel.pipeline == 1) {
    return BasicPlanner({.order = recipe.run.order, .recompute = recompute});
  }
  switch (*parallel.schedule) {
    case PipelineSchedule::k1F1B:
      return PlannerOf(OneFOneB, recompute);
    case PipelineSchedule::kInterleaved:
      return PlannerOf(Interleaved, recompute);
    case PipelineSchedule::kZeroBubble:
      return PlannerOf(ZeroBubble, recompute);
  }
  DELINK_CHECK(false) << "no such schedule";
  return {};
}

Planner PlannerOf(const RunEnv& env, size_t stage, size_t layout,
                  const Layout& of) {
  const Recipe& recipe = *env.recipe;
  const OffloadRules& offload = recipe.stages[layout].offload;
  return WithResidency(WithStores(
      BarePlannerOf(recipe, stage, layout),
      {.layers = PlaceActivations(of, offload, FoundOf(env, layout)).stored}));
}

}  // namespace delink
