// Growth: a switch into a stage that visits more blocks than the one before.
// This file says where each slab comes from; all else is as at any switch
// (delink.h):
//
//   a slab of blocks of which some were visited   keeps its contents
//   of new blocks alone, GrowPolicy copy, cycle   is a copy of another slab
//   of new blocks alone, random, zero             begins fresh
//
// The optimizer's state of a copy follows StatePolicy, as for any slab, with
// n = layers that used the old slab / layers that use the new one. If one layer
// used the old slab and k layers share the copy, n is 1/k; a kept slab that
// more layers use than before has n < 1 too. kReset resets copies; kCalibrated
// cannot measure them. Slabs that begin fresh have zero state and no updates.
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
  // Of the stage before: says which blocks a new block would have shared with.
  ShareSpec share;
  uint64_t seed = 0;  // of the run's initial weights
};

// RelationOf if both visit the same blocks; else `to` must visit all blocks of
// `from`. Further errors: a block that is no longer visited; a copy of a block
// of another kind; under kZero a new block that has no parameter of its own
// which writes to the residual stream.
absl::StatusOr<std::vector<SlabOrigin>> GrowthOf(const ParamRegistry& registry,
                                                 int blocks,
                                                 const SharingMap& from,
                                                 const SharingMap& to,
                                                 const Growth& growth);

// The initial values of a parameter of a slab that begins fresh.
Init FreshInit(const ParamSpec& spec, const Growth& growth);

// Initialises the weights of the slabs that begin fresh (GrowthOf).
void InitFresh(ParamStore& to, const std::vector<SlabOrigin>& origins,
               const Growth& growth);

}  // namespace delink
