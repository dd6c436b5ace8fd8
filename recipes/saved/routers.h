// What `delink inspect` says of the routers of a checkpoint with experts: the
// loads that its run recorded, and the biases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/layout.h"

namespace delink {

struct RouterOfLayer {
  std::string layer;                              // "blocks/1"
  std::optional<std::pair<double, double>> bias;  // the least and the largest
  std::vector<double> load;  // as RoutingByLayer's; empty: not known
  double max_violation() const { return load.back() - 1; }
};

struct Routers {
  int64_t step = 0;                   // of the loads; 0: none is known
  std::vector<RouterOfLayer> layers;  // those with a router
};

// `path`: a verified step folder with the parameters of `layout`, written at
// `step`. If the folder lies in that of a run whose metrics.jsonl can be read,
// the loads are those of the last row up to this step.
absl::StatusOr<Routers> ReadRouters(const std::string& path, int64_t step,
                                    const Layout& layout);

// A table; nothing without routers.
std::string ToText(const Routers& routers);

}  // namespace delink
