#include "recipes/run/stage/nodes.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"
#include "framework/comm/communicator.h"
#include "recipes/schema/describe.h"

namespace delink {
namespace {

std::set<int> NodesOfGroup(const std::vector<int>& group,
                           const std::vector<int>& nodes) {
  std::set<int> all;
  for (const int rank : group) all.insert(At(nodes, rank));
  return all;
}

// The first tensor group that is on several nodes; empty if none is.
std::vector<int> GroupAcross(const Mesh& mesh, const std::vector<int>& nodes) {
  if (mesh.tensor == 1) return {};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.PlaceOf(rank)[Axis::kTensor] > 0) continue;
    std::vector<int> group = mesh.Group(rank, Axes{Axis::kTensor});
    if (NodesOfGroup(group, nodes).size() > 1) return group;
  }
  return {};
}

// How to keep tensor groups on a node: another order of ranks, or fewer tensor
// ranks and more data ranks.
std::string Mend(Mesh mesh, const std::vector<int>& nodes,
                 const ModelConfig& model) {
  const Mesh given = mesh;
  mesh.order = Mesh().order;
  if (mesh.order != given.order && GroupAcross(mesh, nodes).empty()) {
    return "put \"tensor\" first in rank_order";
  }
  while (mesh.tensor > 1 && !GroupAcross(mesh, nodes).empty()) {
    int fewer = mesh.tensor - 1;
    const int ranks = mesh.tensor * mesh.data;
    while (ranks % fewer != 0 || !model.CutsInto(fewer)) --fewer;
    mesh.data = ranks / fewer;
    mesh.tensor = fewer;
  }
  return absl::StrCat("use tensor ", mesh.tensor);
}

absl::Status CheckStage(const Recipe& recipe, size_t i,
                        const std::vector<int>& nodes) {
  const ParallelConfig& parallel = recipe.stages[i].parallel;
  if (parallel.tensor_across_nodes.value_or(false)) return absl::OkStatus();
  const Mesh mesh = MeshOf(parallel);
  const std::vector<int> group = GroupAcross(mesh, nodes);
  if (group.empty()) return absl::OkStatus();
  const std::string key = absl::StrFormat("stage[%d].parallel.tensor", i);
  return ErrorAt(
      recipe, key, key,
      absl::StrFormat("%d, but ranks %s of one group are on nodes %s, and "
                      "every layer would wait for the network between them; "
                      "%s, number ranks node by node, or allow it with "
                      "tensor_across_nodes = true",
                      mesh.tensor, absl::StrJoin(group, ","),
                      absl::StrJoin(NodesOfGroup(group, nodes), ","),
                      Mend(mesh, nodes, *recipe.model)));
}

// "2 nodes of 8", or "3 nodes of 2 to 4".
std::string NodesText(const std::vector<int>& nodes) {
  std::map<int, int> counts;
  for (const int node : nodes) ++counts[node];
  const auto by_count = [](const auto& a, const auto& b) {
    return a.second < b.second;
  };
  const auto [least, most] =
      std::minmax_element(counts.begin(), counts.end(), by_count);
  std::string text = absl::StrCat(counts.size(), " nodes of ", least->second);
  if (most->second > least->second) {
    absl::StrAppend(&text, " to ", most->second);
  }
  return text;
}

}  // namespace

std::vector<int> NodesOf(int64_t ranks, int64_t per_node) {
  std::vector<int> nodes;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    nodes.push_back(per_node > 0 ? static_cast<int>(rank / per_node) : 0);
  }
  return nodes;
}

absl::StatusOr<std::vector<int>> NodesOf(World& world) {
  // The first rank there is stands for a node.
  DELINK_ASSIGN_OR_RETURN(
      const int64_t leader,
      AllReduceScalar(world.local(), -int64_t{world.rank()}, ReduceOp::kMax));
  std::vector<int64_t> firsts(static_cast<size_t>(world.size()));
  At(firsts, world.rank()) = -leader;
  DELINK_RETURN_IF_ERROR(
      world.comm()
          .AllReduce(firsts.data(), world.size(), DType::kI64, ReduceOp::kSum)
          ->Wait());
  std::map<int64_t, int> numbers;
  std::vector<int> nodes;
  for (const int64_t first : firsts) {
    nodes.push_back(
        numbers.emplace(first, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

absl::Status CheckNodes(const Recipe& recipe, const std::vector<int>& nodes,
                        size_t first) {
  for (size_t i = first; i < recipe.stages.size(); ++i) {
    DELINK_RETURN_IF_ERROR(CheckStage(recipe, i, nodes));
  }
  return absl::OkStatus();
}

int ExpertNodes(const Mesh& mesh, const std::vector<int>& nodes) {
  if (nodes.empty() || mesh.expert == 1) return 1;
  int count = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.PlaceOf(rank)[Axis::kExpert] != 0) continue;
    std::vector<int> of_place(static_cast<size_t>(mesh.expert));
    for (const int other : mesh.Group(rank, Axes{Axis::kExpert})) {
      At(of_place, mesh.PlaceOf(other)[Axis::kExpert]) = At(nodes, other);
    }
    const auto found = static_cast<int>(
        std::set<int>(of_place.begin(), of_place.end()).size());
    if (mesh.expert % found != 0 || (count > 0 && found != count)) return 1;
    count = found;
    for (int place = 0; place < mesh.expert; ++place) {
      const int first = place / (mesh.expert / count) * (mesh.expert / count);
      if (At(of_place, place) != At(of_place, first)) return 1;
    }
  }
  return count;
}

std::string RanksText(const Mesh& mesh, const std::vector<int>& nodes) {
  DELINK_CHECK_EQ(static_cast<int>(nodes.size()), mesh.ranks());
  if (mesh.ranks() == 1) return "1";
  std::string text;
  std::string fastest;
  for (const Axis axis : mesh.order) {
    if (mesh.along(axis) == 1) continue;
    const std::string name(schema::Word(axis));
    if (text.empty()) fastest = name;
    absl::StrAppend(&text, text.empty() ? "" : " x ", name, " ",
                    mesh.along(axis));
  }
  if (mesh.along(Axis::kData) < mesh.ranks()) {
    absl::StrAppend(&text, ", neighbours along ", fastest);
  }
  if (mesh.expert > 1) absl::StrAppend(&text, ", expert ", mesh.expert);
  if (std::ranges::adjacent_find(nodes, std::not_equal_to()) == nodes.end()) {
    return text;
  }
  absl::StrAppend(&text, "; ", NodesText(nodes));
  if (mesh.tensor == 1) return text;
  const bool within = GroupAcross(mesh, nodes).empty();
  return absl::StrCat(text, within ? ", each tensor group on one"
                                   : ", tensor groups across them");
}

}  // namespace delink
