// Growth: a switch into a stage that visits more blocks than the one before.
// What each slab comes from, so that the rest is as at any switch (delink.h):
//
//   a slab of blocks of which some were visited   keeps what they had
//   of new blocks alone, GrowPolicy copy, cycle   a copy of another's slab
//   of new blocks alone, random, zero             begins fresh
//
// The optimizer's state of a copy is as StatePolicy says, with n = layers that
// used the old slab / layers that use the new one, as for any slab: what one
// block used is the state of one block's gradient, and n is 1. kReset resets
// copies; kCalibrated has nothing to measure them by. A slab that more blocks
// use than before has n < 1. What begins fresh has state of zeros and no
// updates.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/param_store.h"
#include "framework/sharing/depth_policy.h"
#include "framework/sharing/resolve.h"

namespace delink {

struct Growth {
  GrowPolicy policy = GrowPolicy::kCopy;
  // Of the stage before: whom a new block would have shared with.
  ShareSpec share;
  uint64_t seed = 0;  // of the run's initial weights
};

// As RelationOf, which this is where both visit the same; else `to` visits all
// that `from` does. Errors besides: a block that is not visited any more; a
// copy of a block of another kind; under kZero a new block that writes nothing
// to the residual stream by itself.
absl::StatusOr<std::vector<SlabOrigin>> GrowthOf(const ParamRegistry& registry,
                                                 int blocks,
                                                 const SharingMap& from,
                                                 const SharingMap& to,
                                                 const Growth& growth);

// What a parameter of a slab that begins fresh begins with.
Init FreshInit(const ParamSpec& spec, const Growth& growth);

// Gives the slabs that begin fresh, by GrowthOf, their weights.
void InitFresh(ParamStore& to, const std::vector<SlabOrigin>& origins,
               const Growth& growth);

}  // namespace delink
