#include "recipes/run/observers/pipeline_rows.h"

#include <set>

#include "framework/base/at.h"
#include "recipes/run/observers/norms_by_layer.h"

namespace delink {

std::vector<PipelineRow> PipelineRows(const Layout& layout,
                                      const Sequential& model) {
  const Mesh& mesh = layout.mesh();
  std::vector<PipelineRow> rows;
  for (int s = 0; s < mesh.pipeline; ++s) {
    MeshPlace place;
    place[Axis::kPipeline] = s;
    const int first = mesh.RankAt(place);
    PipelineRow row{.ranks = mesh.Group(
                        first, {Axis::kTensor, Axis::kContext, Axis::kData}),
                    .layers = NameOfLayers(model, layout.LayersOf(first))};
    std::set<int> slabs;  // logical ones
    for (const int local : layout.LocalSlabsOf(first)) {
      slabs.insert(At(layout.local_slabs(), local).logical);
    }
    for (const int slab : slabs) {
      for (const SlabParam& param : At(layout.slabs(), slab).params) {
        row.parameters += param.elements;
      }
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace delink
