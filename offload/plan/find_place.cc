#include "offload/plan/find_place.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// A share that the search raises from 0 to 1.
using Level = double AutoPlace::*;
using Levels = std::array<Level, 4>;

// A way down.
struct Way {
  Levels levels;
  double recompute = 0;
};

constexpr Levels kPlanesFirst = {&AutoPlace::state, &AutoPlace::gradients,
                                 &AutoPlace::activations, &AutoPlace::weights};
constexpr Levels kActivationsFirst = {&AutoPlace::activations,
                                      &AutoPlace::state, &AutoPlace::gradients,
                                      &AutoPlace::weights};
constexpr Way kWays[] = {{.levels = kPlanesFirst},
                         {.levels = kPlanesFirst, .recompute = 0.5},
                         {.levels = kPlanesFirst, .recompute = 1},
                         {.levels = kActivationsFirst},
                         {.levels = kActivationsFirst, .recompute = 1}};

// Any strict order of places.
struct Before {
  bool operator()(const AutoPlace& a, const AutoPlace& b) const {
    const auto all = [](const AutoPlace& of) {
      return std::tie(of.state, of.gradients, of.weights, of.activations,
                      of.recompute, of.ends, of.host_updates, of.ahead);
    };
    return all(a) < all(b);
  }
};

class Ladder {
 public:
  Ladder(const PlaceLimits& limits, int64_t slabs, const CostOfPlace& cost)
      : limits_(limits), slabs_(slabs), cost_(cost) {}

  // The best place with the share `host` of the updates on the host.
  absl::StatusOr<FoundPlace> Find(double host, const Way& way) {
    FoundPlace best{.place = {.host_updates = host}};
    DELINK_ASSIGN_OR_RETURN(best.cost, cost_(best.place));
    best.resident = best.cost;
    DELINK_RETURN_IF_ERROR(DescendAll(way, best));
    if (!FitsDevice(best.cost)) {
      FoundPlace other{.place = {.ends = 1, .host_updates = host}};
      DELINK_ASSIGN_OR_RETURN(other.cost, cost_(other.place));
      DELINK_RETURN_IF_ERROR(DescendAll(way, other));
      if (other.cost.device < best.cost.device) {
        best.place = other.place;
        best.cost = other.cost;
      }
    }
    best.fits = Fits(best.cost);
    return best;
  }

  bool FitsDevice(const PlaceCost& cost) const {
    return !limits_.device || cost.device <= *limits_.device;
  }
  bool Fits(const PlaceCost& cost) const {
    return FitsDevice(cost) && (!limits_.host || cost.host <= *limits_.host);
  }

  // The smaller rank is better.
  bool IsBetter(const FoundPlace& a, const FoundPlace& b) const {
    const auto rank = [&](const FoundPlace& of) {
      const bool device = FitsDevice(of.cost);
      return std::tuple(!of.fits, !device, of.fits ? of.cost.seconds : 0,
                        device ? of.cost.host : of.cost.device);
    };
    return rank(a) < rank(b);
  }

  // Shorter by more than the error of rates.
  bool IsMuchBetter(const FoundPlace& a, const FoundPlace& b) const {
    return a.fits && a.cost.seconds < 0.99 * b.cost.seconds;
  }

 private:
  absl::Status DescendAll(const Way& way, FoundPlace& best) {
    for (const Level level : way.levels) {
      if (FitsDevice(best.cost)) break;
      AutoPlace from = best.place;
      if (level == &AutoPlace::activations) from.recompute = way.recompute;
      DELINK_RETURN_IF_ERROR(Descend(level, from, best));
    }
    return absl::OkStatus();
  }

  // The first step of a level after `from` that fits; if none fits, the last
  // one, if it needs less device memory than `best`.
  absl::Status Descend(Level level, AutoPlace from, FoundPlace& best) {
    const auto at = [&](int64_t step) {
      AutoPlace place = from;
      place.*level = static_cast<double>(step) / static_cast<double>(slabs_);
      return place;
    };
    DELINK_ASSIGN_OR_RETURN(const PlaceCost last, cost_(at(slabs_)));
    if (last.device < best.cost.device) {
      best.place = at(slabs_);
      best.cost = last;
    }
    // `short_of` does not fit, `best` does.
    int64_t short_of = 0, fits = slabs_;
    while (FitsDevice(last) && fits - short_of > 1) {
      const int64_t middle = short_of + (fits - short_of) / 2;
      DELINK_ASSIGN_OR_RETURN(const PlaceCost cost, cost_(at(middle)));
      if (!FitsDevice(cost)) {
        short_of = middle;
        continue;
      }
      fits = middle;
      best.place = at(middle);
      best.cost = cost;
    }
    return absl::OkStatus();
  }

  const PlaceLimits& limits_;
  const int64_t slabs_;
  const CostOfPlace& cost_;
};

struct Descent {
  FoundPlace found;
  Way way = kWays[0];
};

// The best of all ways, with all updates on one side.
absl::StatusOr<Descent> FindWith(Ladder& ladder, const PlaceLimits& limits,
                                 Tier update) {
  const double host = update == Tier::kHost ? 1 : 0;
  Descent best;
  DELINK_ASSIGN_OR_RETURN(best.found, ladder.Find(host, best.way));
  if (ladder.FitsDevice(best.found.resident)) return best;
  for (const Way& way : kWays) {
    if (way.recompute > 0 && !limits.recompute) continue;
    DELINK_ASSIGN_OR_RETURN(const FoundPlace found, ladder.Find(host, way));
    if (ladder.IsBetter(found, best.found)) {
      best = {.found = found, .way = way};
    }
  }
  return best;
}

// Improves a place that fits: moves some updates to the other side and adds
// copies, if the step becomes shorter.
absl::Status Refine(Ladder& ladder, const PlaceLimits& limits,
                    const CostOfPlace& cost, Descent& best) {
  for (const double share : {0.25, 0.5, 0.75}) {
    if (limits.updates.size() < 2) break;
    DELINK_ASSIGN_OR_RETURN(const FoundPlace found,
                            ladder.Find(share, best.way));
    if (ladder.IsMuchBetter(found, best.found)) best.found = found;
  }
  const AutoPlace updated = best.found.place;
  for (const int32_t ahead : {2, 4}) {
    FoundPlace more = best.found;
    more.place = updated;
    more.place.ahead = ahead;
    DELINK_ASSIGN_OR_RETURN(more.cost, cost(more.place));
    more.fits = ladder.Fits(more.cost);
    if (ladder.IsMuchBetter(more, best.found)) best.found = more;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FoundPlace> FindPlace(const PlaceLimits& limits, int64_t slabs,
                                     const CostOfPlace& cost) {
  DELINK_CHECK(!limits.updates.empty());
  DELINK_CHECK_GT(slabs, 0);
  // Ways have rungs in common.
  std::map<AutoPlace, PlaceCost, Before> known;
  const CostOfPlace known_cost =
      [&](const AutoPlace& place) -> absl::StatusOr<PlaceCost> {
    const auto at = known.find(place);
    if (at != known.end()) return at->second;
    DELINK_ASSIGN_OR_RETURN(const PlaceCost of, cost(place));
    known.emplace(place, of);
    return of;
  };
  Ladder ladder(limits, slabs, known_cost);
  std::optional<Descent> best;
  std::optional<PlaceCost> by_device, by_host;
  for (const Tier update : limits.updates) {
    DELINK_ASSIGN_OR_RETURN(const Descent descent,
                            FindWith(ladder, limits, update));
    const FoundPlace& found = descent.found;
    if (found.fits) {
      (update == Tier::kHost ? by_host : by_device) = found.cost;
    }
    // Of equal places the first.
    if (!best || ladder.IsBetter(found, best->found)) best = descent;
  }
  if (best->found.fits) {
    DELINK_RETURN_IF_ERROR(Refine(ladder, limits, known_cost, *best));
  } else {
    FoundPlace fewer = best->found;
    fewer.place.ahead = 0;
    DELINK_ASSIGN_OR_RETURN(fewer.cost, known_cost(fewer.place));
    fewer.fits = ladder.Fits(fewer.cost);
    if (ladder.IsBetter(fewer, best->found)) best->found = fewer;
  }
  best->found.by_device = by_device;
  best->found.by_host = by_host;
  return best->found;
}

std::string ToString(const AutoPlace& place) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, double share) {
    if (share == 0) return;
    parts.push_back(absl::StrFormat("%s of %.3g%%", what, 100 * share));
  };
  add("state", place.state);
  add("gradients", place.gradients);
  add("activations", place.activations * (1 - place.recompute));
  add("weights", place.weights);
  const double again = place.activations * place.recompute;
  const std::string part =
      absl::StrFormat("%.3g%%, those needed last", 100 * place.host_updates);
  std::string text = absl::StrJoin(parts, ", ");
  if (!parts.empty()) absl::StrAppend(&text, " of the blocks");
  if (place.ends > 0) {
    absl::StrAppend(&text, parts.empty() ? "" : ", and ",
                    "state of embedding and head");
  }
  if (parts.empty() && place.ends == 0) {
    absl::StrAppend(&text, "all \"auto\" planes device-resident, ",
                    place.host_updates == 0   ? "updated by the device"
                    : place.host_updates == 1 ? "updated by the host"
                                              : "the host updates " + part);
  } else {
    absl::StrAppend(&text, " host-resident, ",
                    place.host_updates == 0   ? "updated by the device"
                    : place.host_updates == 1 ? "updated by the host"
                                              : "the host updates " + part);
  }
  if (again > 0) {
    absl::StrAppendFormat(
        &text, ", %.3g%% of the blocks recomputed in backward", 100 * again);
  }
  if (place.ahead > 1) {
    absl::StrAppend(&text, ", ", place.ahead, " copies ahead");
  }
  if (place.ahead == 0) absl::StrAppend(&text, ", without prefetch");
  return text;
}

}  // namespace delink
