// The planes of a slab.
#pragma once

#include <cstdint>

#include "framework/module/placement.h"

namespace delink {

enum class Plane : uint8_t {
  kWeight,
  kGradient,
  kMaster,
  kLow,
  // The optimizer's states, in the order of their specs.
  kState0,
  kState1,
  kState2,
  kState3
};
inline constexpr int kPlanes = 8;
inline constexpr int kMaxStates = 4;
constexpr Plane StatePlane(int state) {
  return static_cast<Plane>(static_cast<int>(Plane::kState0) + state);
}
constexpr bool IsState(Plane plane) { return plane >= Plane::kState0; }

inline const PlanePlacement& PlacementOf(const PlacementRow& row, Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return row.weight;
    case Plane::kGradient:
      return row.gradient;
    default:
      break;
  }
  return row.state;
}

}  // namespace delink
