// Which layers share weights, as a user writes it.
//
//   all        every layer links to one slab
//   groups:4   four runs of consecutive layers (12 layers: 0-2, 3-5, ...)
//   cycle:4    layer i uses set i mod 4
//   none       every layer has its own slab
//
// A ShareSpec gives one policy to every part of a layer ("all"), or names parts
// ("attention=all,mlp=groups:4"); a part that is not named shares nothing.
// Everything here is plain data and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

struct SharePolicy {
  enum class Kind { kNone, kAll, kGroups, kCycle };
  Kind kind = Kind::kNone;
  int64_t n = 0;  // number of sets; kGroups and kCycle only, else 0

  bool operator==(const SharePolicy&) const = default;
};

struct ShareSpec {
  // The policy of every part, if one was given for all.
  std::optional<SharePolicy> every;
  // By part; used when `every` is empty.
  std::map<std::string, SharePolicy> parts;

  // The policy of `part`: every's, its own, or none.
  SharePolicy For(std::string_view part) const;

  bool operator==(const ShareSpec&) const = default;
};

// "all", "groups:4", "cycle:4" or "none".
absl::StatusOr<SharePolicy> ParseSharePolicy(std::string_view text);

// A policy, or "part=policy,part=policy".
absl::StatusOr<ShareSpec> ParseShareSpec(std::string_view text);

// The text that parses back equal.
std::string ToString(const SharePolicy& policy);
std::string ToString(const ShareSpec& spec);

// An error if the policy does not fit that many layers: groups:g and
// cycle:g need 1 <= g <= layers, and groups:g must divide the layers.
absl::Status CheckSharePolicy(const SharePolicy& policy, int64_t layers);

// The set that `layer` belongs to, counted from 0, and how many sets there are.
// The policy must fit (CheckSharePolicy).
int64_t ShareSetOf(const SharePolicy& policy, int64_t layers, int64_t layer);
int64_t ShareSets(const SharePolicy& policy, int64_t layers);

// Whether every two layers that share under `fine` also share under `coarse`:
// a switch from `coarse` to `fine` only cuts links.
bool Refines(const SharePolicy& fine, const SharePolicy& coarse,
             int64_t layers);

}  // namespace delink
