// Which blocks a stage visits, and which blocks share: for each part, the block
// whose slab a block uses.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "framework/base/at.h"

namespace delink {

// Made from a recipe by framework/sharing.
struct SharingMap {
  // Blocks, ascending; empty: all of the model's. Other blocks have no slabs
  // and may not be passed to the functions below, except Visits and
  // VisitsLayer.
  std::vector<int> visited;
  // leaders[part][block] is the first visited block that uses the same slab,
  // which may be the block itself; -1 if the block is not visited. Parts that
  // are not listed share nothing.
  std::map<std::string, std::vector<int>> leaders;

  bool Visits(int block) const {
    return visited.empty() ||
           std::binary_search(visited.begin(), visited.end(), block);
  }
  // For a layer of the Sequential: prologue and epilogue are always visited.
  bool VisitsLayer(int layer, int blocks) const {
    return layer < 1 || layer > blocks || Visits(layer - 1);
  }
  // The visited blocks of a model of `blocks` blocks, listed even if all are.
  std::vector<int> VisitedOf(int blocks) const {
    if (!visited.empty()) return visited;
    std::vector<int> all(static_cast<size_t>(blocks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  int Leader(const std::string& part, int block) const {
    const auto it = leaders.find(part);
    const int leader = it == leaders.end() ? block : At(it->second, block);
    DELINK_CHECK(Visits(block) && Visits(leader))
        << part << " of block " << block << ", leader " << leader;
    return leader;
  }
  friend bool operator==(const SharingMap&, const SharingMap&) = default;
};

}  // namespace delink
