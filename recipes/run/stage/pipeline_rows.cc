#include "recipes/run/stage/pipeline_rows.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"

namespace delink {

std::string NameOfLayers(const Sequential& model,
                         const std::vector<int>& layers) {
  const auto is_block = [&](int layer) {
    return layer >= 1 && layer <= model.blocks();
  };
  std::string name;
  bool blocks = false;  // "blocks/" is there already
  for (size_t i = 0; i < layers.size(); ++i) {
    const char* const comma = i == 0 ? "" : ",";
    if (!is_block(layers[i])) {
      absl::StrAppend(&name, comma, model.layer_name(layers[i]));
      continue;
    }
    if (blocks) {
      absl::StrAppend(&name, comma, layers[i] - 1);
    } else {
      absl::StrAppend(&name, comma, model.layer_name(layers[i]));
    }
    blocks = true;
    size_t last = i;
    while (last + 1 < layers.size() && is_block(layers[last + 1]) &&
           layers[last + 1] == layers[last] + 1) {
      ++last;
    }
    if (last > i) absl::StrAppend(&name, "..", layers[last] - 1);
    i = last;
  }
  return name;
}

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
