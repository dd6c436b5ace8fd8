#include "recipes/run/observers/norms_by_layer.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

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

absl::StatusOr<NormsByLayer> MeasureNorms(StageRun& stage) {
  const std::vector<double> gradients = stage.executor().GradientNorms();
  DELINK_ASSIGN_OR_RETURN(const std::vector<double> weights,
                          stage.executor().WeightNorms());
  struct Squares {
    double gradient = 0, weight = 0;
  };
  std::map<std::vector<int>, Squares> sums;  // by the layers that share
  const std::vector<Slab>& slabs = stage.store().layout().slabs();
  for (size_t s = 0; s < slabs.size(); ++s) {
    Squares& sum = sums[slabs[s].layers];
    sum.gradient += gradients[s] * gradients[s];
    sum.weight += weights[s] * weights[s];
  }
  NormsByLayer norms;
  for (const auto& [layers, sum] : sums) {
    norms.layers.push_back(NameOfLayers(stage.model(), layers));
    norms.gradient.push_back(std::sqrt(sum.gradient));
    norms.weight.push_back(std::sqrt(sum.weight));
  }
  return norms;
}

}  // namespace delink
