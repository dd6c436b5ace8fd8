#include "framework/comm/groups.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Indices of groups, by the Split that makes them: each group is in the first
// Split in which none of its ranks is taken yet.
std::vector<std::vector<size_t>> Rounds(
    const std::vector<std::vector<int>>& groups) {
  std::vector<std::vector<size_t>> rounds;
  std::vector<std::set<int>> taken;
  for (size_t g = 0; g < groups.size(); ++g) {
    size_t round = 0;
    const auto is_free = [&] {
      return std::none_of(groups[g].begin(), groups[g].end(), [&](int rank) {
        return taken[round].contains(rank);
      });
    };
    while (round < rounds.size() && !is_free()) ++round;
    if (round == rounds.size()) {
      rounds.emplace_back();
      taken.emplace_back();
    }
    rounds[round].push_back(g);
    taken[round].insert(groups[g].begin(), groups[g].end());
  }
  return rounds;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> SplitGroups(
    Communicator& comm, const std::vector<std::vector<int>>& groups) {
  for (const std::vector<int>& group : groups) {
    DELINK_CHECK(!group.empty() && std::is_sorted(group.begin(), group.end()));
    DELINK_CHECK(group.front() >= 0 && group.back() < comm.size());
  }
  std::vector<std::unique_ptr<Communicator>> made(groups.size());
  for (const std::vector<size_t>& round : Rounds(groups)) {
    // The ranks that are in no group of the round form a part of their own.
    size_t mine = groups.size();
    for (const size_t g : round) {
      const std::vector<int>& group = groups[g];
      if (std::binary_search(group.begin(), group.end(), comm.rank())) mine = g;
    }
    DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part,
                            comm.Split(static_cast<int>(mine), comm.rank()));
    if (mine < groups.size()) made[mine] = std::move(part);
  }
  return made;
}

}  // namespace delink
