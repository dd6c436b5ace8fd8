// Offloads slots between forward and backward: adds the instructions that store
// them on the host and load them again to a program that was planned as if all
// stayed on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/program/instruction.h"
#include "offload/plan/residency.h"

namespace delink {

struct StoreOptions {
  // By layer as programs count them: whether its slots may be offloaded. Only
  // blocks' slots are, whatever this says of others. Empty: none.
  std::vector<bool> layers;
  // How many slots of a class have room besides those that must be on the
  // device, so that one can be copied while visits use the others.
  int32_t beside = 1;
};

// If there is no room for the slot that is filled next, `choose` picks a slot
// whose forward is done, and it is stored: by default the one whose backward is
// last. It is loaded before its backward, one visit early if there is room.
// There is room for the most slots that must be on the device at one time,
// because a visit uses them, their forward is still to come or they may not be
// offloaded; and for `beside` more. Lanes run ahead, so copies overlap visits.
//
// A pure function. A pass without backward is returned unchanged.
Program AddStores(const Program& bare, const StoreOptions& options,
                  const ChooseCopy& choose = WantedLast);

// A planner that applies AddStores to the programs of `planner`.
Planner WithStores(Planner planner, StoreOptions options);

}  // namespace delink
