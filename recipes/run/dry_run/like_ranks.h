// Which ranks of a layout take the same memory, so that a plan makes the store
// of one of them alone.
#pragma once

#include <span>
#include <vector>

#include "framework/module/param_store.h"

namespace delink {

// For each of `ranks`, ascending, the first of them that is like it: it has the
// same place along the tensor axis, as many local slabs of each form, in groups
// of as many ranks, and owns as many of each form, or as large a share of the
// state. Slabs have one form if they differ in
// names and values alone. Like ranks have equal bytes of each plane in each
// tier, and equal copies of planes (StepMemory). `store` is of any rank of the
// layout.
std::vector<int> LikeRanks(const ParamStore& store, std::span<const int> ranks);

}  // namespace delink
