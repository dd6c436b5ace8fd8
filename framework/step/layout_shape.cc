#include "framework/step/layout_shape.h"

#include <algorithm>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink {

ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches) {
  const Mesh& mesh = layout.mesh();
  DELINK_CHECK_EQ(mesh.data * mesh.pipeline, mesh.ranks())
      << "steps know no other axes than data and pipeline yet";
  const std::vector<LocalSlab>& slabs = layout.local_slabs();
  ProgramShape shape{.layers = static_cast<int32_t>(layout.places()),
                     .slabs = static_cast<int32_t>(slabs.size()),
                     .micro_batches = micro_batches,
                     .ranks = mesh.data,
                     .stages = mesh.pipeline};
  if (mesh.pipeline > 1) shape.chunk_of_layer = layout.options().chunks;
  shape.slabs_of_layer.resize(static_cast<size_t>(layout.places()));
  const std::vector<int>& visited = layout.visited();
  for (int32_t s = 0; s < shape.slabs; ++s) {
    for (const int layer : At(slabs, s).slab.layers) {
      const auto place =
          std::lower_bound(visited.begin(), visited.end(), layer);
      At(shape.slabs_of_layer, place - visited.begin()).push_back(s);
    }
    const PlacementRow& row = At(layout.placement().rows, s);
    shape.gathers.push_back(row.state.sharded && !row.weight.sharded);
  }
  return shape;
}

}  // namespace delink
