// On which machines the ranks of a stage are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/module/mesh.h"
#include "parallel/launch/launch.h"
#include "recipes/schema/recipe.h"

namespace delink {

// By rank the number of its node: `per_node` neighbours are on each; 0: all are
// on one.
std::vector<int> NodesOf(int64_t ranks, int64_t per_node);
// The same of the ranks that were started. Collective.
absl::StatusOr<std::vector<int>> NodesOf(World& world);

// Of a recipe that is fitted to these ranks, from stage `first` on: an error
// where the ranks of a tensor group are on several nodes, unless the stage
// allows it.
absl::Status CheckNodes(const Recipe& recipe, const std::vector<int>& nodes,
                        size_t first = 0);

// "tensor 2 x data 4 x pipeline 2, neighbours along tensor; 2 nodes of 8, each
// tensor group on one": the axes that have several ranks, the fastest first.
// "1" of one rank.
std::string RanksText(const Mesh& mesh, const std::vector<int>& nodes);

}  // namespace delink
