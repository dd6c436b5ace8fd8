#include "framework/step/plan/layout_shape.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "framework/base/at.h"

namespace delink {
namespace {

PlanePlacement PlacementOf(const PlacementRow& row, PlaneSet planes) {
  switch (planes) {
    case PlaneSet::kWeight:
    case PlaneSet::kUpdated:
      return row.weight;
    case PlaneSet::kGradient:
      return row.gradient;
    case PlaneSet::kState:
      break;
  }
  return row.state;
}

// The most of a class that one layer, or one update, works on.
int32_t MostAtOnce(const ProgramShape& shape, PlaneSet planes,
                   int32_t copy_class) {
  int32_t most = 1;
  for (const std::vector<int32_t>& slabs : shape.slabs_of_layer) {
    int32_t count = 0;
    for (const int32_t slab : slabs) {
      count += CopyClassOf(shape, planes, slab) == copy_class ? 1 : 0;
    }
    most = std::max(most, count);
  }
  return IsOfUpdates(planes) ? 1 : most;
}

// The most slabs of a class that one stage has: more copies are never taken.
int32_t MostInAStage(const ProgramShape& shape, PlaneSet planes,
                     int32_t copy_class) {
  std::vector<std::set<int32_t>> of_stage(static_cast<size_t>(shape.stages));
  for (int32_t l = 0; l < shape.layers; ++l) {
    for (const int32_t slab : At(shape.slabs_of_layer, l)) {
      if (CopyClassOf(shape, planes, slab) != copy_class) continue;
      At(of_stage, StageOf(shape, l)).insert(slab);
    }
  }
  size_t most = 1;
  for (const std::set<int32_t>& slabs : of_stage) {
    most = std::max(most, slabs.size());
  }
  return static_cast<int32_t>(most);
}

void AddCopies(const Layout& layout, int32_t ahead, bool late,
               ProgramShape* shape) {
  const std::vector<PlacementRow>& rows = layout.placement().rows;
  for (const PlaneSet planes : kAllPlaneSets) {
    // By size, cut, exactness and residency.
    std::map<std::tuple<int64_t, AxisCut, bool, bool>, int32_t> classes;
    std::vector<int32_t>& of = shape->copy_class[static_cast<size_t>(planes)];
    const size_t first = shape->copies.size();
    for (int32_t s = 0; s < shape->slabs; ++s) {
      const ProgramSlab& slab = At(layout.program_slabs(), s);
      const PlacementRow& row = At(rows, slab.first);
      const PlanePlacement place = PlacementOf(row, planes);
      of.push_back(-1);
      const bool sharded = IsSharded(*shape, s);
      const bool gathers = sharded && planes == PlaneSet::kWeight;
      if (place.tier == Tier::kDevice && !gathers) continue;
      // The host has the state of slabs that it updates.
      const bool host = row.update == Tier::kHost;
      if (planes == PlaneSet::kState && host) continue;
      // Whole weights are updated in the copy that visits read, if that is
      // resident or updates are not late.
      const bool own = sharded || (late && !place.resident);
      if (planes == PlaneSet::kUpdated && (host || !own)) continue;
      const int64_t size = At(layout.slabs(), slab.logical).elements;
      const bool exact = At(layout.local_slabs(), slab.first).slab.exact;
      const auto next = static_cast<int32_t>(shape->copies.size());
      const auto [at, added] =
          classes.try_emplace({size, slab.cut, exact, place.resident}, next);
      if (added) shape->copies.push_back(0);
      of.back() = at->second;
    }
    if (shape->copies.size() == first) of.clear();
    for (const auto& [key, number] : classes) {
      int32_t& copies = At(shape->copies, number);
      copies = MostInAStage(*shape, planes, number);
      if (std::get<3>(key)) continue;  // one each
      copies = std::min(copies, MostAtOnce(*shape, planes, number) + ahead);
    }
  }
  for (int32_t s = 0; s < shape->slabs; ++s) {
    const int first = At(layout.program_slabs(), s).first;
    shape->host_updates.push_back(At(rows, first).update == Tier::kHost);
  }
  const std::vector<bool>& host = shape->host_updates;
  if (std::find(host.begin(), host.end(), true) == host.end()) {
    shape->host_updates.clear();
  }
}

void AddWholes(const Layout& layout, ProgramShape* shape) {
  // By size, cut and exactness.
  std::map<std::tuple<int64_t, AxisCut, bool>, int32_t> classes;
  for (int32_t s = 0; s < shape->slabs; ++s) {
    const ProgramSlab& slab = At(layout.program_slabs(), s);
    shape->whole_class.push_back(-1);
    if (!At(layout.placement().rows, slab.first).gradient.sharded) continue;
    const auto next = static_cast<int32_t>(classes.size());
    const auto at = classes.try_emplace(
        {At(layout.slabs(), slab.logical).elements, slab.cut,
         At(layout.local_slabs(), slab.first).slab.exact},
        next);
    shape->whole_class.back() = at.first->second;
  }
  if (classes.empty()) shape->whole_class.clear();
  shape->reduces_parts =
      !classes.empty() && layout.options().reduces_micro_batches;
}

}  // namespace

ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches, int32_t ahead,
                     bool late) {
  const Mesh& mesh = layout.mesh();
  const std::vector<ProgramSlab>& slabs = layout.program_slabs();
  ProgramShape shape{.layers = static_cast<int32_t>(layout.places()),
                     .slabs = static_cast<int32_t>(slabs.size()),
                     .micro_batches = micro_batches,
                     .ranks = mesh.tensor * mesh.context * mesh.data,
                     .stages = mesh.pipeline,
                     .tensor = mesh.tensor,
                     .context = mesh.context,
                     .expert = mesh.expert,
                     .expert_nodes = mesh.expert_nodes};
  if (mesh.pipeline > 1) shape.chunk_of_layer = layout.options().chunks;
  shape.slabs_of_layer.resize(static_cast<size_t>(layout.places()));
  const std::vector<int>& visited = layout.visited();
  for (int32_t s = 0; s < shape.slabs; ++s) {
    // Its pieces are alike.
    const ProgramSlab& slab = At(slabs, s);
    for (const int layer : At(layout.local_slabs(), slab.first).slab.layers) {
      const auto place =
          std::lower_bound(visited.begin(), visited.end(), layer);
      At(shape.slabs_of_layer, place - visited.begin()).push_back(s);
    }
    const PlacementRow& row = At(layout.placement().rows, slab.first);
    const LocalSlab& local = At(layout.local_slabs(), slab.first);
    shape.gathers.push_back(row.state.sharded &&
                            (!row.weight.sharded || local.replicas > 1));
    shape.shards.push_back(row.weight.sharded);
    if (VisitsTogether(shape)) shape.slab_cuts.push_back(slab.cut);
  }
  if (std::ranges::find(shape.shards, true) == shape.shards.end()) {
    shape.shards.clear();
  }
  AddCopies(layout, ahead, late, &shape);
  AddWholes(layout, &shape);
  return shape;
}

std::vector<std::vector<VisitExchange>> UpdateExchangesOf(
    const Layout& layout, const SlabOptimizer& optimizer, DType type) {
  std::vector<std::vector<VisitExchange>> by_slab;
  bool any = false;
  const int tensor = layout.mesh().tensor;
  for (size_t s = 0; tensor > 1 && s < layout.program_slabs().size(); ++s) {
    std::vector<VisitExchange>& exchanges = by_slab.emplace_back();
    const int first = layout.program_slabs()[s].first;
    const int owner = At(layout.placement().rows, first).owner;
    const int rank = owner == kNoOwner
                         ? At(layout.local_slabs(), first).group->front()
                         : owner;
    for (const UpdateExchange& e :
         optimizer.Exchanges(layout, rank, first, type)) {
      const int64_t bytes = e.count * SizeOf(e.dtype);
      const bool sum = e.kind == UpdateExchange::Kind::kSum;
      exchanges.push_back({.axis = Axis::kTensor,
                           .kind = sum ? VisitExchange::Kind::kSum
                                       : VisitExchange::Kind::kGather,
                           .bytes = sum ? bytes : tensor * bytes});
    }
    any = any || !exchanges.empty();
  }
  if (!any) by_slab.clear();
  return by_slab;
}

bool MayBeLate(const SlabOptimizer& optimizer) {
  return optimizer.whole_tensors() == WholeTensors::kNone;
}

std::vector<bool> LateUpdatesOf(const ProgramShape& shape,
                                const SlabOptimizer& optimizer) {
  std::vector<bool> late;
  if (!MayBeLate(optimizer)) return late;
  for (int32_t s = 0; s < shape.slabs; ++s) {
    late.push_back(!HostUpdates(shape, s) && HasCopiesForUpdates(shape, s));
  }
  if (std::ranges::find(late, true) == late.end()) late.clear();
  return late;
}

}  // namespace delink
