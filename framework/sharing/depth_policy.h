// Which blocks a stage visits, and the initial values of those that the stage
// before did not visit.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace delink {

// Which blocks are visited if not all are.
//   first  the first ones
//   even   spread over all: block floor(i layers / depth) for each i. If depth
//          divides a larger depth, the larger one visits all these blocks too.
//          They are the first blocks of the groups of groups:depth
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

// As SharingMap::visited: ascending, and empty if depth is layers.
// 1 <= depth <= layers.
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

// The initial values of a new block, except for slabs that it shares with
// blocks that were visited before.
//   copy    those of the nearest visited block before it; if the stage before
//           shares, only blocks that would share with it count: delinking
//   cycle   block i gets those of number i mod d of d visited blocks
//   random  the initial weights that a run from scratch gives it
//   zero    as random, but what writes to the residual stream is zero: the
//           block returns its input, so the outputs of the model do not change
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
