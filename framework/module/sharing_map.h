// Which blocks a stage visits, and who shares with whom: for each part, the
// block whose slab a block uses.
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
  // Blocks, ascending; empty: all of the model's. The others have no slabs, and
  // nothing below may be asked of them.
  std::vector<int> visited;
  // leaders[part][block] is the first visited block that uses the same slab,
  // itself when it is the first; -1 where the block is not visited. Parts that
  // are not listed share nothing.
  std::map<std::string, std::vector<int>> leaders;

  bool Visits(int block) const {
    return visited.empty() ||
           std::binary_search(visited.begin(), visited.end(), block);
  }
  // Of a layer of the Sequential: prologue and epilogue are always visited.
  bool VisitsLayer(int layer, int blocks) const {
    return layer < 1 || layer > blocks || Visits(layer - 1);
  }
  // The list, of a model of so many blocks.
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
