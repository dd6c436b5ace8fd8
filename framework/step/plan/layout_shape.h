// What programs need to know about a layout.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/layout.h"
#include "framework/optim/slab_optimizer.h"
#include "framework/step/program/instruction.h"

namespace delink {

// The shape of a layout, the same on every rank. It lacks slot classes and
// exchanges, which need measured layers (measure.h). Host-resident planes of a
// set, and sharded weights, share a class of copies if their logical slabs have
// the same size and are cut in the same way. If the planes also have a resident
// copy, each slab has its own. Otherwise there are as many copies as a layer or
// an update works on at a time and, if there are more such slabs, up to `ahead`
// more for prefetch and eviction. Whole gradients of slabs whose gradient is
// sharded are of one class in the same way. If updates may be `late`, weights
// without a resident copy have separate copies for updates.
ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches,
                     int32_t ahead = 1, bool late = false);

// ProgramShape::update_exchanges, of parameters whose state is of `type`.
std::vector<std::vector<VisitExchange>> UpdateExchangesOf(
    const Layout& layout, const SlabOptimizer& optimizer, DType type);

// Whether updates treat each element alone. Then they need nothing of the
// compute lane: no scratch memory, and no exchanges with other ranks.
bool MayBeLate(const SlabOptimizer& optimizer);

// ProgramShape::late_updates: slabs that the device updates in copies
// (HasCopiesForUpdates), if updates MayBeLate.
std::vector<bool> LateUpdatesOf(const ProgramShape& shape,
                                const SlabOptimizer& optimizer);

}  // namespace delink
