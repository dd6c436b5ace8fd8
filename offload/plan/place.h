// Applies a stage's `offload` slab by slab: where planes are kept, and whether
// host or device updates them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "framework/module/layout.h"
#include "offload/plan/find_place.h"
#include "offload/plan/offload_rules.h"

namespace delink {

// By logical slab; pure. `found` decides what the rules leave to kAuto.
std::vector<SlabTiers> PlaceSlabs(const Layout& layout,
                                  const OffloadRules& rules,
                                  const AutoPlace& found = {});

// The number of logical slabs of blocks.
int64_t BlockSlabs(const Layout& layout);

// A block's activations, by layer as programs count them. `stored`: they are
// copied to the host, because a rule for some slab of the block says so, or by
// `found` if the rules leave it to kAuto. `recomputed`: they are not kept; only
// `found` says so. Never both. `found` spreads blocks evenly. Pure.
struct BlockActivations {
  std::vector<bool> stored, recomputed;
};
BlockActivations PlaceActivations(const Layout& layout,
                                  const OffloadRules& rules,
                                  const AutoPlace& found = {});

// The first row that matches no parameter of the registry.
std::optional<size_t> RowWithoutMatch(const ParamRegistry& registry,
                                      const OffloadRules& rules);

}  // namespace delink
