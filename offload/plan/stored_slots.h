// Which slots leave the device between forward and backward, and when: the
// instructions that store them on the host and load them again, put into a
// program that was planned as if all stayed.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/instruction.h"
#include "offload/plan/residency.h"

namespace delink {

struct StoreOptions {
  // By layer as programs count them: whether its slots may go. Only blocks'
  // do, whatever is said of others. Empty: none.
  std::vector<bool> layers;
  // How many slots of a class there is room for besides those that must be
  // there: one comes or goes while visits are at work on these.
  int32_t beside = 1;
};

// Where there is no room for a slot that is filled next, the one whose backward
// is the last goes, once its forward is through; it comes back before its
// backward, a visit early where there is room by then. There is room for as
// many as must be there at some time, because visits are at work on them or to
// come forward, or because they may not go, and `beside`. As lanes run ahead,
// a slot goes and comes while others are at work.
//
// A pure function; a pass without backward is that program.
Program AddStores(const Program& bare, const StoreOptions& options,
                  const ChooseCopy& choose = WantedLast);

// The planner's programs, with that.
Planner WithStores(Planner planner, StoreOptions options);

}  // namespace delink
