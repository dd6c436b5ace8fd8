#include "recipes/plan/step_bound.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/step/proof/visit_meetings.h"
#include "layers/ops/accumulate.h"
#include "parallel/pipeline/cut_layers.h"
#include "recipes/run/dry_run/machine_step.h"
#include "recipes/run/dry_run/step_exchanges.h"
#include "recipes/run/stage/nodes.h"

namespace delink {
namespace {

MeasureOptions OptionsOf(const RunEnv& env, const Recipe& recipe,
                         size_t index) {
  return {.device = env.device->kind(),
          .dtype = recipe.run.precision,
          .bf16_gradients = recipe.run.gradients == DType::kBF16,
          .batch = BatchShapeOf(recipe, index),
          .accumulate = Accumulate};
}

}  // namespace

StepBound::StepBound(const RunEnv& env, size_t index,
                     const PlannedMachine& machine)
    : env_(env),
      index_(index),
      rank_flops_(machine.RankFlops(env.recipe->run.precision)),
      ranks_(static_cast<double>(machine.ranks)),
      network_(NetworkOf(machine)) {}

absl::StatusOr<StepBound> StepBound::Create(const RunEnv& env, size_t index,
                                            const PlannedMachine& machine) {
  StepBound bound(env, index, machine);
  DELINK_RETURN_IF_ERROR(bound.FindBlocks());
  return bound;
}

// Blocks with equal work are alike.
absl::Status StepBound::FindBlocks() {
  DELINK_ASSIGN_OR_RETURN(const SharingMap sharing, SharingOf(env_, index_));
  MeasureOptions options = OptionsOf(env_, *env_.recipe, index_);
  options.visited = sharing.visited;
  options.batch.micro_batch = 1;
  options.batch.expert_room = 0;
  options.work_alone = true;
  const std::vector<LayerPlan> layers =
      MeasureLayers(*env_.model, *env_.registry, options);
  const std::vector<int> visited = sharing.VisitedOf(env_.model->blocks());
  std::map<std::tuple<double, double, double, int64_t>, size_t> known;
  places_.push_back(0);
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerPlan& of = layers[l];
    sequence_flops_ += of.flops + of.backward_flops;
    if (l == 0 || l + 1 == layers.size()) continue;
    again_flops_ += of.flops;
    const auto [at, fresh] = known.try_emplace(
        {of.flops, of.backward_flops, of.weight_flops, of.sums},
        blocks_.size() + 1);
    if (fresh) blocks_.push_back(visited[l - 1]);
    places_.push_back(at->second);
  }
  places_.push_back(blocks_.size() + 1);
  return absl::OkStatus();
}

double StepBound::OfWork(Recompute recompute) const {
  const double flops =
      sequence_flops_ + (recompute == Recompute::kBlock ? again_flops_ : 0);
  return flops * static_cast<double>(env_.recipe->Batch(index_)) /
         (ranks_ * rank_flops_);
}

absl::StatusOr<StepBound::Form> StepBound::Measure(const StageForm& form) {
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, FitForm(env_, index_, form));
  const ParallelConfig& parallel = recipe.stages[index_].parallel;
  const bool pipeline = parallel.pipeline > 1;
  Form result{
      .mesh = MeshOf(parallel),
      .recompute = form.recompute == Recompute::kBlock,
      .halves = pipeline && parallel.schedule == PipelineSchedule::kZeroBubble,
      .chunks = pipeline ? parallel.chunks : 1,
      .micro_batches = recipe.Accumulation(index_)};
  if (parallel.dispatch == ExpertDispatch::kDeduplicated) {
    result.mesh.expert_nodes = ExpertNodes(result.mesh, env_.nodes);
  }
  MeasureOptions options = OptionsOf(env_, recipe, index_);
  options.visited = blocks_;
  options.mesh = result.mesh;
  options.sequence = parallel.tensor > 1 && *parallel.sequence;
  options.known = env_.measured.get();
  result.layers = MeasureLayers(*env_.model, *env_.registry, options);
  return result;
}

double StepBound::SecondsOf(const Form& form, const LayerPlan& layer, Op op,
                            uint8_t flags) const {
  const Instruction at{.op = op, .flags = flags};
  const VisitFlops flops = FlopsOf(layer, at);
  double seconds =
      (flops.forward + flops.backward + flops.recompute) / rank_flops_;
  for (const Phase phase : PhasesOf(PassKind::kStep, at)) {
    for (const VisitExchange& of : At(layer.exchanges, phase)) {
      const StepExchange each = WithinVisit("", of, form.mesh);
      seconds +=
          TimeOf(network_, each.kind, each.bytes,
                 OnNodes(RanksOfVisit(form.mesh, 0, each.among), env_.nodes))
              .time;
    }
  }
  return seconds;
}

StepBound::VisitSeconds StepBound::VisitsOf(const Form& form,
                                            size_t layer) const {
  const LayerPlan& of = form.layers[layer];
  if (layer + 1 == form.layers.size()) {
    return {.forward = SecondsOf(form, of, Op::kLoss, 0)};
  }
  const bool block = layer > 0;
  const uint8_t flags = block && form.recompute ? kRecompute : 0;
  VisitSeconds visits{.forward = SecondsOf(form, of, Op::kForward, flags)};
  if (block && form.halves) {
    visits.input = SecondsOf(form, of, Op::kBackwardInput, flags);
    visits.weight = SecondsOf(form, of, Op::kBackwardWeight, 0);
  } else {
    visits.input = SecondsOf(form, of, Op::kBackward, flags);
  }
  return visits;
}

// By place, as a stage's layout cuts it.
std::vector<int> StepBound::ChunksOf(const Form& form) const {
  if (form.mesh.pipeline == 1) return std::vector<int>(places_.size(), 0);
  std::vector<double> costs;
  for (size_t at = 0; at < places_.size(); ++at) {
    const LayerPlan& of = form.layers[places_[at]];
    const bool block = at > 0 && at + 1 < places_.size();
    const double forwards = block && form.recompute ? 2 : 1;
    costs.push_back(forwards * of.flops + of.backward_flops);
  }
  return CutByCost(costs, static_cast<int>(form.mesh.pipeline * form.chunks));
}

absl::StatusOr<double> StepBound::Of(const StageForm& stage) {
  DELINK_ASSIGN_OR_RETURN(const Form form, Measure(stage));
  std::vector<VisitSeconds> by_layer;
  for (size_t l = 0; l < form.layers.size(); ++l) {
    by_layer.push_back(VisitsOf(form, l));
  }
  const auto pipeline = static_cast<size_t>(form.mesh.pipeline);
  std::vector<double> work(pipeline), before(pipeline);
  const std::vector<int> chunks = ChunksOf(form);
  for (size_t at = 0; at < places_.size(); ++at) {
    const VisitSeconds& visits = by_layer[places_[at]];
    const auto chunk = static_cast<size_t>(chunks[at]);
    work[chunk % pipeline] += visits.forward + visits.input + visits.weight;
    if (chunk < pipeline) before[chunk] += visits.forward + visits.input;
  }
  double least = 0, waited = 0;
  for (size_t s = 0; s < pipeline; ++s) {
    least = std::max(
        least, waited + static_cast<double>(form.micro_batches) * work[s]);
    waited += before[s];
  }
  return least;
}

}  // namespace delink
