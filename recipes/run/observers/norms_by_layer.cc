#include "recipes/run/observers/norms_by_layer.h"

#include <cmath>
#include <map>

#include "framework/base/status_macros.h"
#include "recipes/run/stage/pipeline_rows.h"

namespace delink {

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
