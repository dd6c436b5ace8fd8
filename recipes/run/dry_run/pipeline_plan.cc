#include "recipes/run/dry_run/pipeline_plan.h"

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
#include "recipes/run/dry_run/find_homes.h"
#include "recipes/run/stage/pipeline_rows.h"
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
std::string AlongOf(const Mesh& mesh, StepExchange::Among among,
                    const std::vector<int>& group) {
  if (among >= StepExchange::Among::kExpert) return "expert";
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

// Exchanges of a step, by kind.
void CountExchanges(const ParamStore& store, PipelineStagePlan& plan) {
  const Layout& layout = store.layout();
  for (size_t i = 0; i < plan.exchanged.size(); ++i) {
    const Instruction& at = plan.program.instructions[i];
    for (const StepExchange& of : plan.exchanged[i]) {
      if (of.what.empty()) continue;
      if (of.what == "boundaries") plan.sent_bytes += of.bytes;
      if (of.what == "gradients" || of.what == "weights") {
        const bool reduces = of.kind == ExchangeKind::kReduceScatter;
        (reduces ? plan.reduced_bytes : plan.gathered_bytes) += of.bytes;
      }
      const std::vector<int> ranks =
          RanksOf(layout, store.rank(), plan.program, at, of.among);
      Count({of.what, of.name, AlongOf(layout.mesh(), of.among, ranks),
             std::ssize(ranks), 1, of.bytes},
            plan);
    }
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

// Bytes of a copy between host and device.
int64_t CopiedBytes(const StageRun& stage, const Instruction& at) {
  const ParamStore& store = stage.store();
  const Executor& executor = stage.executor();
  if (!IsOverBus(at.lane)) return 0;
  if (at.op == Op::kStoreSlot || at.op == Op::kLoadSlot) {
    const int32_t slots = SlotClassOf(executor.program().shape, at.layer);
    return At(executor.memory().stored, slots).bytes;
  }
  if (at.op != Op::kFetch && at.op != Op::kEvict) return 0;
  int64_t bytes = 0;
  for (const Plane plane : PlanesOf(store, PlaneSetOf(at))) {
    bytes += store.bytes(SlabHere(store, at.slab), plane);
  }
  return bytes;
}

Trace::Entry EntryOf(const StageRun& stage,
                     const std::vector<LayerPlan>& layers,
                     const Instruction& at) {
  const ParamStore& store = stage.store();
  Trace::Entry entry{
      .at = at, .name = ToString(at), .bytes = CopiedBytes(stage, at)};
  if (at.slab >= 0) entry.of = store.slab(SlabHere(store, at.slab)).name;
  if (at.layer >= 0) {
    entry.of = stage.model().layer_name(At(store.layout().visited(), at.layer));
    const VisitFlops flops = FlopsOf(At(layers, at.layer), at);
    entry.forward_flops = flops.forward;
    entry.backward_flops = flops.backward;
    entry.recompute_flops = flops.recompute;
  }
  if (!entry.of.empty()) absl::StrAppend(&entry.name, " of ", entry.of);
  return entry;
}

// With the rates of a node.
void Time(ImaginedStage& imagined, const std::vector<LayerPlan>& layers,
          const KnownRates& rates, PipelineStagePlan& plan) {
  const StageRun& stage = imagined.stage();
  const ParamStore& store = stage.store();
  plan.seconds = StepSeconds(imagined, rates);
  for (size_t i = 0; i < plan.program.instructions.size(); ++i) {
    Trace::Entry entry = EntryOf(stage, layers, plan.program.instructions[i]);
    for (const StepExchange& of : plan.exchanged[i]) entry.bytes += of.bytes;
    plan.entries.push_back(std::move(entry));
  }
  // A checkpoint has each value once, from its owner.
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    int64_t state = 0;
    for (const Plane plane : PlanesOf(store, PlaneSet::kState)) {
      state += store.bytes(slab, plane);
    }
    plan.switched_bytes += store.bytes(slab, Plane::kWeight) + state;
    const int64_t owned = store.owned(slab).size();
    if (owned == 0) continue;
    const int64_t here = store.held(slab, Plane::kState0).size();
    plan.saved_bytes += owned * SizeOf(DType::kF32) + state * owned / here;
  }
}

// For one rank of a pipeline stage.
PipelineStagePlan Describe(ImaginedStage& imagined, const PipelineRow& row,
                           const std::vector<LayerPlan>& layers,
                           const KnownRates* rates) {
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
    plan.exchanged.push_back(ExchangesOf(imagined, layers, plan.program, at));
    plan.sent.push_back(SentIn(plan.exchanged.back()));
  }
  CountExchanges(stage.store(), plan);
  if (rates != nullptr) Time(imagined, layers, *rates, plan);
  return plan;
}

}  // namespace

std::vector<Column> ColumnsOf(const PipelinePlan& plan, const Mesh& mesh) {
  const int stages = static_cast<int>(plan.stages.size());
  std::vector<Column> columns(mesh.ranks() / stages, Column(stages));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const MeshPlace at = mesh.PlaceOf(rank);
    const int stage = at[Axis::kPipeline];
    At(At(columns, mesh.InStage(at)), stage) = {
        .rank = rank, .program = &At(plan.stages, stage).program};
  }
  return columns;
}

absl::StatusOr<PipelinePlan> PlanPipeline(ImaginedStage& first,
                                          const KnownRates* rates) {
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
        plan.stages.push_back(Describe(of, row, layers, rates));
        return absl::OkStatus();
      }));
  if (rows.size() == 1) return plan;
  plan.shared = FindShared(store);
  TimeStages(*first.env().shared->plan, layers, plan);
  return plan;
}

}  // namespace delink
