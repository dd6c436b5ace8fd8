#include "recipes/plan/pipeline_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/step/plan/measure.h"
#include "framework/step/proof/joint_plan.h"
#include "framework/step/proof/visit_meetings.h"
#include "layers/ops/accumulate.h"
#include "parallel/pipeline/pipeline_time.h"
#include "recipes/run/observers/pipeline_rows.h"
#include "recipes/schema/describe.h"

namespace delink {
namespace {

constexpr int kPictureColumns = 1024;

// Current allocations.
std::vector<MemoryLedger::Entry> Taken(const DeviceLedgers& ledgers) {
  std::vector<MemoryLedger::Entry> taken;
  for (const MemoryLedger* const ledger : {&ledgers.allocated, &ledgers.own}) {
    for (const MemoryLedger::Entry& entry : ledger->entries()) {
      if (entry.bytes > 0) taken.push_back(entry);
    }
  }
  return taken;
}

// "tensor x data": along which axes ranks of a group differ.
std::string AlongOf(const Mesh& mesh, const std::vector<int>& group) {
  std::string along;
  for (const Axis axis : mesh.order) {
    const int first = mesh.PlaceOf(group.front())[axis];
    const bool differs = std::ranges::any_of(
        group, [&](int rank) { return mesh.PlaceOf(rank)[axis] != first; });
    if (!differs) continue;
    absl::StrAppend(&along, along.empty() ? "" : " x ", ToString(axis));
  }
  return along;
}

// Adds one exchange to the entry of its kind.
void Count(const ExchangePlan& one, PipelineStagePlan& plan) {
  for (ExchangePlan& other : plan.exchanges) {
    if (std::tie(other.what, other.kind, other.along, other.ranks) !=
        std::tie(one.what, one.kind, one.along, one.ranks)) {
      continue;
    }
    other.count += one.count;
    other.bytes += one.bytes;
    return;
  }
  plan.exchanges.push_back(one);
}

std::string NameOf(VisitExchange::Kind kind) {
  switch (kind) {
    case VisitExchange::Kind::kGather:
      return "all-gather";
    case VisitExchange::Kind::kScatter:
      return "reduce-scatter";
    case VisitExchange::Kind::kAllToAll:
      return "all-to-all";
    case VisitExchange::Kind::kAllToNodes:
      return "all-to-all of nodes";
    case VisitExchange::Kind::kAllToNode:
      return "all-to-all within a node";
    case VisitExchange::Kind::kSum:
      return "all-reduce";
    case VisitExchange::Kind::kMax:
      break;
  }
  return "all-reduce max";
}

// Exchanges within visits and updates.
void CountInside(const ImaginedStage& imagined,
                 const std::vector<LayerPlan>& layers,
                 PipelineStagePlan& plan) {
  const ParamStore& store = imagined.stage().store();
  const Layout& layout = store.layout();
  const int64_t tensor = layout.mesh().tensor;
  for (const Instruction& at : plan.program.instructions) {
    if (at.op == Op::kUpdate) {
      const int local = layout.LocalSlabOf(at.slab, store.rank());
      const DType type = StatisticsOf(store.options().dtype);
      for (const UpdateExchange& of : imagined.env().optimizer->Exchanges(
               layout, store.rank(), local, type)) {
        const bool sum = of.kind == UpdateExchange::Kind::kSum;
        Count({"updates", sum ? "all-reduce" : "all-gather", "tensor", tensor,
               1, (sum ? 1 : tensor) * of.count * SizeOf(of.dtype)},
              plan);
      }
    }
    if (at.layer < 0) continue;
    for (const Phase phase : PhasesOf(PassKind::kStep, at)) {
      const VisitExchanges& all = At(layers, at.layer).exchanges;
      for (const VisitExchange& of : At(all, static_cast<int>(phase))) {
        Count({"activations", NameOf(of.kind), ToString(of.axis),
               RanksOf(layout.mesh(), of), 1, of.bytes},
              plan);
      }
    }
  }
}

// An exchange of a slab's weights or gradient, which has `bytes` in all.
struct SlabExchange {
  enum class Kind : uint8_t { kReduceScatter, kAllGather, kBroadcast, kGather };
  Kind kind = Kind::kReduceScatter;
  std::vector<int> ranks;
  int64_t bytes = 0;
};

const char* ToString(SlabExchange::Kind kind) {
  switch (kind) {
    case SlabExchange::Kind::kReduceScatter:
      return "reduce-scatter";
    case SlabExchange::Kind::kAllGather:
      return "all-gather";
    case SlabExchange::Kind::kBroadcast:
      return "broadcast";
    case SlabExchange::Kind::kGather:
      break;
  }
  return "gather";
}

// Of a kReduce, a kGather or a kFetch of sharded weights, in order.
std::vector<SlabExchange> ExchangesOf(const ParamStore& store,
                                      const Instruction& at) {
  using Kind = SlabExchange::Kind;
  const Layout& layout = store.layout();
  const int slab = SlabHere(store, at.slab);
  const int local = layout.LocalSlabOf(at.slab, store.rank());
  const std::vector<int>& group = *store.local(slab).group;
  if (group.size() == 1) return {};
  const PlacementRow& row = store.placement(slab);
  const bool owned = row.owner != kNoOwner;
  const Kind gathers = owned ? Kind::kBroadcast : Kind::kAllGather;
  const int64_t weights = store.whole_bytes(slab, Plane::kWeight);
  if (at.op == Op::kFetch) {
    return {{gathers, layout.GatherGroup(local, store.rank()), weights}};
  }
  if (at.op == Op::kGather && row.weight.sharded) {
    const int64_t here = store.bytes(slab, Plane::kWeight);
    if (here == 0) return {};
    return {{gathers, layout.ReplicaGroup(local, store.rank()), here}};
  }
  if (at.op == Op::kGather) return {{gathers, group, weights}};
  const int64_t bytes = store.whole_bytes(slab, Plane::kGradient);
  if (InTwoSteps(store, slab)) {
    const int64_t part = bytes / std::ssize(group) * store.local(slab).replicas;
    return {
        {Kind::kReduceScatter, layout.GatherGroup(local, store.rank()), bytes},
        {Kind::kReduceScatter, layout.ReplicaGroup(local, store.rank()), part}};
  }
  std::vector<SlabExchange> exchanges = {{Kind::kReduceScatter, group, bytes}};
  // Every rank updates all of it, or one does.
  if (!row.state.sharded) exchanges.push_back({Kind::kAllGather, group, bytes});
  if (owned) exchanges.push_back({Kind::kGather, group, bytes});
  return exchanges;
}

// Exchanges of all lanes other than compute in a step.
void CountExchanges(const ParamStore& store,
                    const std::vector<LayerPlan>& layers,
                    PipelineStagePlan& plan) {
  const Mesh& mesh = store.layout().mesh();
  for (const Instruction& at : plan.program.instructions) {
    if (at.op == Op::kSend) {
      const int64_t bytes =
          At(layers, at.layer).input.elements() * SizeOf(store.options().dtype);
      plan.sent_bytes += bytes;
      Count({"boundaries", "send", "pipeline", 2, 1, bytes}, plan);
    }
    const bool gather =
        at.op == Op::kGather || GathersWeights(plan.program.shape, at);
    if (at.op != Op::kReduce && !gather) continue;
    for (const SlabExchange& of : ExchangesOf(store, at)) {
      const bool reduces = of.kind == SlabExchange::Kind::kReduceScatter;
      (reduces ? plan.reduced_bytes : plan.gathered_bytes) += of.bytes;
      Count({gather ? "weights" : "gradients", ToString(of.kind),
             AlongOf(mesh, of.ranks), std::ssize(of.ranks), 1, of.bytes},
            plan);
    }
  }
}

// What a kReduce, a kGather or a kFetch of sharded weights sends.
Sent SentOfSlab(const ParamStore& store, const Instruction& at) {
  const int slab = SlabHere(store, at.slab);
  Sent sent;
  for (const SlabExchange& of : ExchangesOf(store, at)) {
    const int64_t ranks = std::ssize(of.ranks);
    ++sent.operations;
    switch (of.kind) {
      case SlabExchange::Kind::kReduceScatter:
      case SlabExchange::Kind::kAllGather:
        sent.bytes += SentInParts(of.bytes, ranks);
        break;
      case SlabExchange::Kind::kBroadcast:
        sent.bytes += store.slab(slab).elements *
                      SizeOf(store.dtype(slab, Plane::kWeight));
        break;
      case SlabExchange::Kind::kGather:
        sent.bytes += of.bytes / ranks;  // the owner nothing
        break;
    }
  }
  return sent;
}

// What an instruction makes this rank send.
Sent SentBy(ImaginedStage& imagined, const std::vector<LayerPlan>& layers,
            const Program& program, const Instruction& at) {
  const ParamStore& store = imagined.stage().store();
  switch (at.op) {
    case Op::kSend:
    case Op::kRecv:
      return {1, At(layers, at.layer).input.elements() *
                     SizeOf(store.options().dtype)};
    case Op::kReduce:
    case Op::kGather:
      return SentOfSlab(store, at);
    case Op::kFetch:
      return GathersWeights(program.shape, at) ? SentOfSlab(store, at) : Sent();
    case Op::kNorm: {
      const int ranks = store.layout().mesh().ranks();
      const int64_t bytes =
          imagined.stage().executor().memory().sums * SizeOf(DType::kF64);
      return ranks == 1 ? Sent() : Sent{1, SentForSum(bytes, ranks)};
    }
    default:
      return SentWithin(program, at);
  }
}

std::vector<SharedSlabs> FindShared(const ParamStore& store) {
  const Layout& layout = store.layout();
  std::map<std::vector<int>, SharedSlabs> shared;  // by ranks
  for (const LocalSlab& local : layout.local_slabs()) {
    std::set<int> stages;
    for (const int rank : *local.group) {
      stages.insert(layout.mesh().PlaceOf(rank)[Axis::kPipeline]);
    }
    if (stages.size() == 1) continue;
    const int ranks = static_cast<int>(local.group->size());
    SharedSlabs& of = shared[*local.group];
    of.stages.assign(stages.begin(), stages.end());
    of.ranks = ranks;
    of.slabs.push_back(local.slab.name);
    of.gradient_bytes +=
        local.slab.ShardElements(ranks) * ranks *
        SizeOf(store.TypeOf(Plane::kGradient, local.slab.exact));
  }
  std::vector<SharedSlabs> all;
  for (auto& [ranks, of] : shared) all.push_back(std::move(of));
  return all;
}

void TimeStages(const JointPlan& joint, const std::vector<LayerPlan>& layers,
                PipelinePlan& plan) {
  const PipelineTime time = TimePipeline(
      joint.Of(PassKind::kStep), [&layers](const Instruction& at) -> VisitCost {
        if (at.layer < 0) return {};
        const VisitFlops flops = FlopsOf(At(layers, at.layer), at);
        return {.forward = flops.forward,
                .backward = flops.backward + flops.recompute};
      });
  plan.bubble = time.bubble();
  plan.picture = DrawPipeline(time, kPictureColumns);
}

WholeGradients WholeOf(const StageRun& stage) {
  const ParamStore& store = stage.store();
  const StepMemory& memory = stage.executor().memory();
  WholeGradients whole{.bytes = memory.copies - memory.first_whole};
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    if (!store.placement(slab).gradient.sharded) continue;
    whole.all += AlignUp(WholeGradientBytes(store, slab));
  }
  return whole;
}

// For one rank of a pipeline stage.
PipelineStagePlan Describe(ImaginedStage& imagined, const PipelineRow& row,
                           const std::vector<LayerPlan>& layers) {
  StageRun& stage = imagined.stage();
  PipelineStagePlan plan{.row = row,
                         .rank = stage.store().rank(),
                         .account = stage.account(),
                         .taken = Taken(stage.store().device().ledgers()),
                         .whole = WholeOf(stage),
                         .program = stage.executor().program()};
  const Layout& layout = stage.store().layout();
  for (const int local : layout.LocalSlabsOf(stage.store().rank())) {
    const LocalSlab& of = At(layout.local_slabs(), local);
    plan.slabs.push_back(of.slab.name);
    if (std::ranges::find(plan.groups, *of.group) == plan.groups.end()) {
      plan.groups.push_back(*of.group);
    }
  }
  for (const Instruction& at : plan.program.instructions) {
    plan.sent.push_back(SentBy(imagined, layers, plan.program, at));
  }
  CountExchanges(stage.store(), layers, plan);
  CountInside(imagined, layers, plan);
  return plan;
}

}  // namespace

absl::StatusOr<PipelinePlan> PlanPipeline(ImaginedStage& first) {
  StageRun& stage = first.stage();
  const ParamStore& store = stage.store();
  const std::vector<PipelineRow> rows =
      PipelineRows(store.layout(), stage.model());
  const std::vector<LayerPlan> layers =
      MeasureLayers(*first.env().model, store,
                    BatchShapeOf(*first.env().recipe, stage.index()),
                    Accumulate, first.env().measured.get());
  PipelinePlan plan;
  DELINK_RETURN_IF_ERROR(
      ForEachHeaviest(first, [&](ImaginedStage& of, const HeaviestRank&) {
        const PipelineRow& row = rows[plan.stages.size()];
        plan.stages.push_back(Describe(of, row, layers));
        return absl::OkStatus();
      }));
  if (rows.size() == 1) return plan;
  plan.shared = FindShared(store);
  TimeStages(*first.env().shared->plan, layers, plan);
  return plan;
}

}  // namespace delink
