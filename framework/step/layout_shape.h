// What programs need to know of a layout.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/layout.h"
#include "framework/optim/slab_optimizer.h"
#include "framework/step/instruction.h"

namespace delink {

// The same on every rank, but for slot classes and exchanges, which come with
// measured layers (measure.h). Of slabs with a home that is not the device,
// copies of a set of planes are a class where their logical slabs are of one
// size: of those that are resident one each, of others as many as a layer works
// on at a time, and, where there are more, `ahead` more, which come or go
// meanwhile. Weights have copies for updates besides those for visits where
// updates may be `late`.
ProgramShape ShapeOf(const Layout& layout, int32_t micro_batches,
                     int32_t ahead = 1, bool late = false);

// ProgramShape::update_exchanges, of parameters whose state is of `type`.
std::vector<std::vector<VisitExchange>> UpdateExchangesOf(
    const Layout& layout, const SlabOptimizer& optimizer, DType type);

// Updates that work on elements alone and so need nothing of the compute lane:
// no scratch memory, and no other ranks.
bool MayBeLate(const SlabOptimizer& optimizer);

// ProgramShape::late_updates: of slabs whose state comes to the device and
// goes, where updates MayBeLate.
std::vector<bool> LateUpdatesOf(const ProgramShape& shape,
                                const SlabOptimizer& optimizer);

}  // namespace delink
