#include "recipes/run/observers/routing_by_layer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/at.h"
#include "layers/ops/route.h"

namespace delink {
namespace {

// Between neighbours in order a quantile is interpolated.
double Quantile(const std::vector<double>& sorted, double at) {
  const double place = at * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = place - static_cast<double>(below);
  return sorted[below] * (1 - weight) + sorted[above] * weight;
}

}  // namespace

std::optional<RoutingByLayer> RoutingOf(StageRun& stage,
                                        const StepResult& result) {
  const std::vector<LayerPlan>& plans = stage.executor().layers();
  const std::vector<int>& visited = stage.store().visited();
  const auto tokens = static_cast<double>(result.tokens);
  RoutingByLayer routing;
  auto sums = result.layer_sums.begin();
  for (size_t place = 0; place < plans.size(); ++place) {
    if (plans[place].sums == 0) continue;
    const int64_t experts = plans[place].sums - ops::kRouteSums;
    std::vector<double> choices(sums, sums + experts);
    const auto sum = [&](ops::RouteSum which) {
      return *(sums + experts + static_cast<int64_t>(which));
    };
    const double all = sum(ops::RouteSum::kChoices);
    const double mean = all / static_cast<double>(experts);
    routing.layers.push_back(stage.model().layer_name(At(visited, place)));
    routing.dropped.push_back(sum(ops::RouteSum::kDropped) / all);
    routing.entropy.push_back(sum(ops::RouteSum::kEntropy) / tokens);
    routing.z.push_back(sum(ops::RouteSum::kZ) / tokens);
    routing.aux_loss.push_back(sum(ops::RouteSum::kBalance) / tokens);
    if (experts <= RoutingByLayer::kListed) routing.choices.push_back(choices);
    std::ranges::sort(choices);
    std::vector<double> load;
    for (const double at : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      load.push_back(Quantile(choices, at) / mean);
    }
    routing.max_violation.push_back(load.back() - 1);
    routing.load.push_back(load);
    sums += plans[place].sums;
  }
  if (routing.layers.empty()) return std::nullopt;
  return routing;
}

}  // namespace delink
