// What `auto` comes to: which of the planes that a stage leaves open are at
// home on the host, who updates what is, which blocks' activations go to the
// host or are made again in backward, and how far ahead planes come.
//
// A ladder is climbed down from all on the device: the state of the blocks'
// slabs goes to the host, then their gradients, then what their forward keeps
// for backward, then their weights; where that is not enough, again with the
// state of embedding and head there besides. State crosses the bus once a step,
// gradients and activations with each micro-batch, weights twice with each, so
// that a byte that a later rung frees costs more than one that an earlier rung
// frees. The first rung that fits is taken.
//
// There are several ways down: with the updates on the device or on the host,
// and with activations that go to the host, that are made again, or half of
// each; made again, they may also be the first rung. Of the places that these
// lead to the one with the shortest step counts. Then some of its updates go to
// the other side, and more copies are there, where that makes the step shorter.
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

// Of what is left open.
struct AutoPlace {
  // Shares of the blocks' elements whose planes are at home on the host.
  double state = 0, gradients = 0, weights = 0;
  // Share of the blocks whose activations are not kept, and of these the share
  // that is made again; the others' go to the host.
  double activations = 0, recompute = 0;
  double ends = 0;  // the state of the other slabs: 0 or 1
  // Of the elements of slabs whose state is at home on the host the share that
  // the host updates: those that a forward needs last, so that there is most
  // time for them.
  double host_updates = 0;
  // Copies of planes besides those that a layer works on.
  int32_t ahead = 1;
  friend bool operator==(const AutoPlace&, const AutoPlace&) = default;
};

struct PlaceCost {
  int64_t device = 0;  // bytes of the rank that has most
  int64_t host = 0;    // bytes of the machine that has most
  double seconds = 0;  // of a step, foreseen
};
using CostOfPlace =
    std::function<absl::StatusOr<PlaceCost>(const AutoPlace& place)>;

struct PlaceLimits {
  std::optional<int64_t> device, host;  // bytes; none: as much as there is
  std::vector<Tier> updates = {Tier::kDevice, Tier::kHost};  // that may be
  bool recompute = false;  // whether blocks may be made again
};

struct FoundPlace {
  // Where nothing fits the place that takes the least of the device, or of
  // those that fit there the least of the host.
  AutoPlace place;
  PlaceCost cost;
  PlaceCost resident;  // of the first rung
  bool fits = false;
  // Of the best place with all updates on the device, or on the host; none:
  // they may not be there, or nothing fits so.
  std::optional<PlaceCost> by_device, by_host;
};

// `slabs`: of blocks, so many steps a level of the ladder has. Errors are the
// cost's.
absl::StatusOr<FoundPlace> FindPlace(const PlaceLimits& limits, int64_t slabs,
                                     const CostOfPlace& cost);

// Of planes that are "auto": "all "auto" planes device-resident, updated by the
// device", "state of 50%, gradients of 25% of the blocks host-resident, updated
// by the host".
std::string ToString(const AutoPlace& place);

}  // namespace delink
