#include "offload/plan/find_place.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// A share that goes up from 0 to 1.
using Level = double AutoPlace::*;
constexpr std::array<Level, 4> kLevels = {
    &AutoPlace::state, &AutoPlace::gradients, &AutoPlace::activations,
    &AutoPlace::weights};

// With updates by one of both.
class Ladder {
 public:
  Ladder(const PlaceLimits& limits, int64_t slabs, const CostOfPlace& cost)
      : limits_(limits), slabs_(slabs), cost_(cost) {}

  absl::StatusOr<FoundPlace> Find(Tier update) {
    FoundPlace best{.place = {.update = update}};
    DELINK_ASSIGN_OR_RETURN(best.cost, cost_(best.place));
    best.resident = best.cost;
    DELINK_RETURN_IF_ERROR(DescendAll(best));
    if (!FitsDevice(best.cost)) {
      FoundPlace other{.place = {.ends = 1, .update = update}};
      DELINK_ASSIGN_OR_RETURN(other.cost, cost_(other.place));
      DELINK_RETURN_IF_ERROR(DescendAll(other));
      if (other.cost.device < best.cost.device) {
        best.place = other.place;
        best.cost = other.cost;
      }
    }
    best.fits = FitsDevice(best.cost) &&
                (!limits_.host || best.cost.host <= *limits_.host);
    return best;
  }

  bool FitsDevice(const PlaceCost& cost) const {
    return !limits_.device || cost.device <= *limits_.device;
  }

 private:
  absl::Status DescendAll(FoundPlace& best) {
    for (const Level level : kLevels) {
      if (FitsDevice(best.cost)) break;
      DELINK_RETURN_IF_ERROR(Descend(level, best.place, best));
    }
    return absl::OkStatus();
  }

  // The first step of a level behind `from` that fits; where none does, the
  // last one, if it takes less than `best`.
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

}  // namespace

absl::StatusOr<FoundPlace> FindPlace(const PlaceLimits& limits, int64_t slabs,
                                     const CostOfPlace& cost) {
  DELINK_CHECK(!limits.updates.empty());
  DELINK_CHECK_GT(slabs, 0);
  Ladder ladder(limits, slabs, cost);
  std::optional<FoundPlace> best;
  for (const Tier update : limits.updates) {
    DELINK_ASSIGN_OR_RETURN(FoundPlace found, ladder.Find(update));
    // The less, the better; of what is alike the first.
    const auto rank = [&](const FoundPlace& of) {
      const bool device = ladder.FitsDevice(of.cost);
      return std::tuple(!of.fits, !device, of.fits ? of.cost.seconds : 0,
                        device ? of.cost.host : of.cost.device);
    };
    if (best && rank(*best) <= rank(found)) std::swap(found, *best);
    const std::optional<FoundPlace> other = std::exchange(best, found);
    if (other && other->fits) best->elsewhere = other->cost;
  }
  return *best;
}

std::string ToString(const AutoPlace& place) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, double share) {
    if (share == 0) return;
    parts.push_back(absl::StrFormat("%s of %.3g%%", what, 100 * share));
  };
  add("state", place.state);
  add("gradients", place.gradients);
  add("activations", place.activations);
  add("weights", place.weights);
  if (parts.empty() && place.ends == 0) {
    return absl::StrCat("all that is left open on the device, and the ",
                        place.update == Tier::kHost ? "host" : "device",
                        " updates");
  }
  std::string text = absl::StrJoin(parts, ", ");
  if (!parts.empty()) absl::StrAppend(&text, " of the blocks");
  if (place.ends > 0) {
    absl::StrAppend(&text, parts.empty() ? "" : ", and ",
                    "state of embedding and head");
  }
  absl::StrAppend(&text, " at home on the host");
  absl::StrAppend(&text, place.update == Tier::kHost
                             ? ", which updates them"
                             : ", updated by the device");
  return text;
}

}  // namespace delink
