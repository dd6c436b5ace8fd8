// How many blocks a stage visits, which, and what those begin with that the
// stage before did not.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace delink {

// Which blocks are visited where not all are.
//   first  the first ones
//   even   spread over all: block floor(i layers / depth) for each i. Where
//          depth divides a greater one, that has all of its blocks; and it has
//          the first of each of groups:depth
enum class VisitPolicy { kFirst, kEven };

constexpr std::string_view ToString(VisitPolicy policy) {
  switch (policy) {
    case VisitPolicy::kFirst:
      return "first";
    case VisitPolicy::kEven:
      return "even";
  }
  return "";
}

// As SharingMap::visited: ascending, and empty where depth is layers. 1 <=
// depth
// <= layers.
inline std::vector<int> VisitedBlocks(VisitPolicy policy, int64_t depth,
                                      int64_t layers) {
  std::vector<int> visited;
  if (depth == layers) return visited;
  for (int64_t i = 0; i < depth; ++i) {
    const bool even = policy == VisitPolicy::kEven;
    visited.push_back(static_cast<int>(even ? i * layers / depth : i));
  }
  return visited;
}

// What a new block begins with, but for what it shares with blocks that were
// visited before.
//   copy    what the visited block next before it has; where the stage before
//           shares, of the visited blocks that would share with it: delinking
//   cycle   block i what number i mod d of d visited blocks has
//   random  the initial weights that a run from scratch gives it
//   zero    as random, with what writes to the residual stream zero: it hands
//           on its input, so that the function of the model stays
enum class GrowPolicy { kCopy, kCycle, kRandom, kZero };

constexpr std::string_view ToString(GrowPolicy policy) {
  switch (policy) {
    case GrowPolicy::kCopy:
      return "copy";
    case GrowPolicy::kCycle:
      return "cycle";
    case GrowPolicy::kRandom:
      return "random";
    case GrowPolicy::kZero:
      return "zero";
  }
  return "";
}

}  // namespace delink
