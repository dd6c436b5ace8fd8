#include "recipes/run/dry_run/step_exchanges.h"

#include <algorithm>
#include <utility>

#include "framework/base/at.h"
#include "framework/comm/link.h"
#include "framework/step/proof/meetings.h"
#include "framework/step/proof/visit_meetings.h"

namespace delink {
namespace {

using Among = StepExchange::Among;

const char* NameOf(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::kReduceScatter:
      return "reduce-scatter";
    case ExchangeKind::kAllGather:
      return "all-gather";
    case ExchangeKind::kAllReduce:
      return "all-reduce";
    case ExchangeKind::kBroadcast:
      return "broadcast";
    case ExchangeKind::kGather:
      return "gather";
    case ExchangeKind::kAllToAll:
      return "all-to-all";
    case ExchangeKind::kSend:
      break;
  }
  return "send";
}

StepExchange Of(const char* what, ExchangeKind kind, Among among, int64_t bytes,
                int64_t sent) {
  return {.what = what,
          .name = NameOf(kind),
          .kind = kind,
          .among = among,
          .bytes = bytes,
          .sent = sent};
}

// Of a kReduce, a kGather or a kFetch of sharded weights.
std::vector<StepExchange> OfSlab(const ParamStore& store,
                                 const Instruction& at) {
  using Kind = ExchangeKind;
  const Layout& layout = store.layout();
  const int slab = SlabHere(store, at.slab);
  const int local = layout.LocalSlabOf(at.slab, store.rank());
  const std::vector<int>& group = *store.local(slab).group;
  if (group.size() == 1) return {};
  const auto ranks_of = [&](Among among) {
    return static_cast<int>(
        among == Among::kSlab ? group.size()
        : among == Among::kGather
            ? layout.GatherGroup(local, store.rank()).size()
            : layout.ReplicaGroup(local, store.rank()).size());
  };
  const auto in_parts = [&](const char* what, Kind kind, Among among,
                            int64_t bytes) {
    return Of(what, kind, among, bytes, SentInParts(bytes, ranks_of(among)));
  };
  const PlacementRow& row = store.placement(slab);
  const bool owned = row.owner != kNoOwner;
  const auto gathered = [&](Among among, int64_t bytes) {
    if (!owned) return in_parts("weights", Kind::kAllGather, among, bytes);
    return Of(
        "weights", Kind::kBroadcast, among, bytes,
        store.slab(slab).elements * SizeOf(store.dtype(slab, Plane::kWeight)));
  };
  const int64_t weights = store.whole_bytes(slab, Plane::kWeight);
  if (at.op == Op::kFetch) return {gathered(Among::kGather, weights)};
  if (at.op == Op::kGather && row.weight.sharded) {
    const int64_t here = store.bytes(slab, Plane::kWeight);
    if (here == 0) return {};
    return {gathered(Among::kReplicas, here)};
  }
  if (at.op == Op::kGather) return {gathered(Among::kSlab, weights)};
  const int64_t bytes = store.whole_bytes(slab, Plane::kGradient);
  if (InTwoSteps(store, slab)) {
    const int64_t part = bytes / std::ssize(group) * store.local(slab).replicas;
    return {
        in_parts("gradients", Kind::kReduceScatter, Among::kGather, bytes),
        in_parts("gradients", Kind::kReduceScatter, Among::kReplicas, part)};
  }
  std::vector<StepExchange> exchanges = {
      in_parts("gradients", Kind::kReduceScatter, Among::kSlab, bytes)};
  // Every rank updates all of it, or one does.
  if (!row.state.sharded) {
    exchanges.push_back(
        in_parts("gradients", Kind::kAllGather, Among::kSlab, bytes));
  }
  if (owned) {
    exchanges.push_back(Of("gradients", Kind::kGather, Among::kSlab, bytes,
                           bytes / std::ssize(group)));  // the owner nothing
  }
  return exchanges;
}

// The places of an expert group that exchange with this one.
std::vector<int> ExpertsOf(const Mesh& mesh, int rank, Among among) {
  const int together = mesh.expert / mesh.expert_nodes;
  const int place = mesh.PlaceOf(rank)[Axis::kExpert];
  std::vector<int> ranks = mesh.Group(rank, {Axis::kExpert});
  std::erase_if(ranks, [&](int other) {
    const int there = mesh.PlaceOf(other)[Axis::kExpert];
    return among == Among::kExpertNodes  ? there % together != place % together
           : among == Among::kExpertNode ? there / together != place / together
                                         : false;
  });
  return ranks;
}

}  // namespace

StepExchange WithinVisit(const char* what, const VisitExchange& of,
                         const Mesh& mesh) {
  using Kind = VisitExchange::Kind;
  const int ranks = RanksOf(mesh, of);
  Among among = of.axis == Axis::kTensor    ? Among::kTensor
                : of.axis == Axis::kContext ? Among::kContext
                                            : Among::kExpert;
  ExchangeKind kind = ExchangeKind::kAllToAll;
  int64_t sent = SentInParts(of.bytes, ranks);
  switch (of.kind) {
    case Kind::kGather:
      kind = ExchangeKind::kAllGather;
      break;
    case Kind::kScatter:
      kind = ExchangeKind::kReduceScatter;
      break;
    case Kind::kAllToAll:
      break;
    case Kind::kAllToNodes:
      among = Among::kExpertNodes;
      break;
    case Kind::kAllToNode:
      among = Among::kExpertNode;
      break;
    case Kind::kSum:
    case Kind::kMax:
      kind = ExchangeKind::kAllReduce;
      sent = SentForSum(of.bytes, ranks);
      break;
  }
  StepExchange exchange = Of(what, kind, among, of.bytes, sent);
  if (of.kind == Kind::kMax) exchange.name += " max";
  if (of.kind == Kind::kAllToNodes) exchange.name += " of nodes";
  if (of.kind == Kind::kAllToNode) exchange.name += " within a node";
  return exchange;
}

std::vector<StepExchange> ExchangesOf(ImaginedStage& imagined,
                                      const std::vector<LayerPlan>& layers,
                                      const Program& program,
                                      const Instruction& at) {
  const ParamStore& store = imagined.stage().store();
  const Mesh& mesh = store.layout().mesh();
  switch (at.op) {
    case Op::kSend:
    case Op::kRecv: {
      const int64_t bytes =
          At(layers, at.layer).input.elements() * SizeOf(store.options().dtype);
      return {Of(at.op == Op::kSend ? "boundaries" : "", ExchangeKind::kSend,
                 Among::kNeighbour, bytes, bytes)};
    }
    case Op::kReduce:
    case Op::kGather:
      return OfSlab(store, at);
    case Op::kFetch:
      if (GathersWeights(program.shape, at)) return OfSlab(store, at);
      return {};
    case Op::kNorm: {
      if (mesh.ranks() == 1) return {};
      const int64_t bytes =
          imagined.stage().executor().memory().sums * SizeOf(DType::kF64);
      return {Of("", ExchangeKind::kAllReduce, Among::kWorld, bytes,
                 SentForSum(bytes, mesh.ranks()))};
    }
    default: {
      const char* const what = at.op == Op::kUpdate ? "updates" : "activations";
      std::vector<StepExchange> exchanges;
      for (const VisitExchange& of : ExchangesIn(program, at)) {
        exchanges.push_back(WithinVisit(what, of, mesh));
      }
      return exchanges;
    }
  }
}

Sent SentIn(const std::vector<StepExchange>& exchanges) {
  Sent sent{.operations = std::ssize(exchanges)};
  for (const StepExchange& of : exchanges) {
    sent.bytes += of.sent;
    if (of.what == "activations" || of.what == "updates") {
      sent.each.push_back(of.sent);
    }
  }
  return sent;
}

std::vector<int> RanksOf(const Layout& layout, int rank, const Program& program,
                         const Instruction& at, StepExchange::Among among) {
  const Mesh& mesh = layout.mesh();
  switch (among) {
    case Among::kWorld:
      return mesh.Group(
          rank, {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline});
    case Among::kNeighbour: {
      MeshPlace there = mesh.PlaceOf(rank);
      there[Axis::kPipeline] = PartnerOf(program, at);
      return {rank, mesh.RankAt(there)};
    }
    case Among::kSlab:
      return *At(layout.local_slabs(), layout.LocalSlabOf(at.slab, rank)).group;
    case Among::kGather:
      return layout.GatherGroup(layout.LocalSlabOf(at.slab, rank), rank);
    case Among::kReplicas:
      return layout.ReplicaGroup(layout.LocalSlabOf(at.slab, rank), rank);
    default:
      return RanksOfVisit(mesh, rank, among);
  }
}

std::vector<int> RanksOfVisit(const Mesh& mesh, int rank, Among among) {
  if (among == Among::kTensor) return mesh.Group(rank, {Axis::kTensor});
  if (among == Among::kContext) return mesh.Group(rank, {Axis::kContext});
  return ExpertsOf(mesh, rank, among);
}

}  // namespace delink
