#include "framework/step/layout_shape.h"

#include <algorithm>
#include <vector>

#include "framework/base/at.h"

namespace delink {

ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches) {
  const Mesh& mesh = layout.mesh();
  const std::vector<ProgramSlab>& slabs = layout.program_slabs();
  ProgramShape shape{.layers = static_cast<int32_t>(layout.places()),
                     .slabs = static_cast<int32_t>(slabs.size()),
                     .micro_batches = micro_batches,
                     .ranks = mesh.tensor * mesh.context * mesh.data,
                     .stages = mesh.pipeline,
                     .tensor = mesh.tensor,
                     .context = mesh.context};
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
    shape.gathers.push_back(row.state.sharded && !row.weight.sharded);
    if (mesh.tensor > 1) shape.slab_pieces.push_back(slab.pieces);
  }
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

}  // namespace delink
