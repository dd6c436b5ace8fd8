// Who shares with whom: for each part, the block whose slab a block uses.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace delink {

// leaders[part][block] is the first block that uses the same slab, itself when
// it is the first. Parts that are not listed share nothing. Made from a recipe
// by framework/sharing.
struct SharingMap {
  std::map<std::string, std::vector<int>> leaders;

  int Leader(const std::string& part, int block) const {
    const auto it = leaders.find(part);
    return it == leaders.end() ? block : it->second[block];
  }
  friend bool operator==(const SharingMap&, const SharingMap&) = default;
};

}  // namespace delink
