// Decides every `auto` of a stage: which planes are host-resident, whether host
// or device updates them, which blocks' activations are copied to the host or
// recomputed in backward, and how far ahead planes are prefetched.
//
// The search climbs down a ladder that begins with everything on the device. It
// moves the state of the blocks' slabs to the host, then their gradients, then
// their activations, then their weights. If that is not enough, it starts again
// with the state of embedding and head on the host too. State is copied once a
// step, gradients and activations once a micro-batch, weights twice a
// micro-batch, so a byte costs more on later rungs. The first rung that fits is
// taken.
//
// There are several ways down: updates on the device or on the host;
// activations copied to the host, recomputed, or half of each; activations, all
// copied or all recomputed, also as the first rung. Of the places found, the
// one with the shortest step wins. Then some of its updates move to the other
// side, and planes get more copies, if that makes the step shorter. If nothing
// fits, planes get no copies to prefetch to.
//
// A pure function of the budgets and of the costs of places. The slabs that
// move are spread evenly over the blocks (PlaceSlabs).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/placement.h"

namespace delink {

// The placement of what is `auto`.
struct AutoPlace {
  // Shares of the blocks' elements whose planes are host-resident.
  double state = 0, gradients = 0, weights = 0;
  // Share of the blocks whose activations are not kept on the device, and of
  // these the share that is recomputed; the others are copied to the host.
  double activations = 0, recompute = 0;
  double ends = 0;  // the state of the other slabs: 0 or 1
  // Of the elements with host-resident state, the share that the host updates:
  // those that a forward needs last, because their updates have the most time.
  double host_updates = 0;
  // Copies of planes in addition to those that a layer works on; 0: nothing is
  // prefetched.
  int32_t ahead = 1;
  friend bool operator==(const AutoPlace&, const AutoPlace&) = default;
};

struct PlaceCost {
  int64_t device = 0;  // bytes of the rank that has most
  int64_t host = 0;    // bytes of the machine that has most
  double seconds = 0;  // of a step, predicted
};
using CostOfPlace =
    std::function<absl::StatusOr<PlaceCost>(const AutoPlace& place)>;

struct PlaceLimits {
  std::optional<int64_t> device, host;  // bytes; none: no limit
  std::vector<Tier> updates = {Tier::kDevice, Tier::kHost};  // allowed
  bool recompute = false;  // whether blocks may be recomputed
};

struct FoundPlace {
  // If nothing fits: of the places that fit the device, the one with the least
  // host memory; if there are none, the one with the least device memory.
  AutoPlace place;
  PlaceCost cost;
  PlaceCost resident;  // of the first rung
  bool fits = false;
  // Of the best place with all updates on the device, or on the host; none if
  // that is not allowed or nothing fits.
  std::optional<PlaceCost> by_device, by_host;
};

// `slabs`: number of slabs of blocks, which is the number of steps of each
// level of the ladder. Returns errors of `cost`.
absl::StatusOr<FoundPlace> FindPlace(const PlaceLimits& limits, int64_t slabs,
                                     const CostOfPlace& cost);

// In words, for "auto" planes: "all "auto" planes device-resident, updated by
// the device", "state of 50%, gradients of 25% of the blocks host-resident,
// updated by the host".
std::string ToString(const AutoPlace& place);

}  // namespace delink
