// The machines (nodes) of a stage's ranks.
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

// The number of each rank's node. Each node has `per_node` consecutive ranks;
// 0: all are on one node.
std::vector<int> NodesOf(int64_t ranks, int64_t per_node);
// The same for the started ranks. Collective.
absl::StatusOr<std::vector<int>> NodesOf(World& world);

// An error if the ranks of a tensor group are on several nodes, unless the
// stage allows it. For stages from `first` on of a recipe fitted to these
// ranks.
absl::Status CheckNodes(const Recipe& recipe, const std::vector<int>& nodes,
                        size_t first = 0);

// Of an expert group the machines that have a run of as many neighbours each,
// in all groups alike; 1 if they are not so.
int ExpertNodes(const Mesh& mesh, const std::vector<int>& nodes);

// "tensor 2 x data 4 x pipeline 2, neighbours along tensor; 2 nodes of 8, each
// tensor group on one": the axes with several ranks, the fastest first. "1" for
// one rank.
std::string RanksText(const Mesh& mesh, const std::vector<int>& nodes);

}  // namespace delink
