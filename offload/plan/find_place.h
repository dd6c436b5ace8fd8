// What `auto` comes to: which of the planes that a stage leaves open are at
// home on the host, and who updates what is.
//
// A ladder is climbed down from all on the device: the state of the blocks'
// slabs goes to the host, then their gradients, then what their forward keeps
// for backward, then their weights; where that is not enough, again with the
// state of embedding and head there besides. State crosses the bus once a step,
// gradients and activations with each micro-batch, weights twice with each, so
// that a byte that a later rung frees costs more than one that an earlier rung
// frees. The first rung that fits is taken, with the updates on the device or
// on the host, whichever makes the shorter step.
//
// A pure function of the budgets and of what places cost: slabs of a set go
// spread evenly over the blocks (PlaceSlabs).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/placement.h"

namespace delink {

// Of the planes that are left open.
struct AutoPlace {
  // Shares of the blocks' elements whose planes are at home on the host.
  double state = 0, gradients = 0, weights = 0;
  double activations = 0;  // share of the blocks whose activations go there
  double ends = 0;         // the state of the other slabs: 0 or 1
  // Of slabs whose state is at home on the host.
  Tier update = Tier::kDevice;
  friend bool operator==(const AutoPlace&, const AutoPlace&) = default;
};

struct PlaceCost {
  int64_t device = 0;  // bytes of the rank that has most
  int64_t host = 0;    // bytes of the machine that has most
  double seconds = 0;  // of a step, estimated
};
using CostOfPlace =
    std::function<absl::StatusOr<PlaceCost>(const AutoPlace& place)>;

struct PlaceLimits {
  std::optional<int64_t> device, host;  // bytes; none: as much as there is
  std::vector<Tier> updates = {Tier::kDevice, Tier::kHost};  // that may be
};

struct FoundPlace {
  // Where nothing fits the place that takes the least of the device, or of
  // those that fit there the least of the host.
  AutoPlace place;
  PlaceCost cost;
  PlaceCost resident;  // of the first rung
  bool fits = false;
  // Of the best place with the updates elsewhere; none: they may not be there,
  // or nothing fits so.
  std::optional<PlaceCost> elsewhere;
};

// `slabs`: of blocks, so many steps a level of the ladder has. Errors are the
// cost's.
absl::StatusOr<FoundPlace> FindPlace(const PlaceLimits& limits, int64_t slabs,
                                     const CostOfPlace& cost);

// Of what is left open: "all that is left open on the device, and the device
// updates", "state of 50%, gradients of 25% of the blocks at home on the host,
// which updates them".
std::string ToString(const AutoPlace& place);

}  // namespace delink
