// Which slabs are at home where, and who updates them: what a stage's
// `offload` says, slab by slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "framework/module/layout.h"
#include "offload/plan/find_place.h"
#include "offload/plan/offload_rules.h"

namespace delink {

// By logical slab; pure. What the rules leave to kAuto is as `found` says.
std::vector<SlabTiers> PlaceSlabs(const Layout& layout,
                                  const OffloadRules& rules,
                                  const AutoPlace& found = {});

// Logical slabs of blocks.
int64_t BlockSlabs(const Layout& layout);

// By layer as programs count them, of what a block keeps for backward: whether
// it is on the host meanwhile, as is said of some slab of the block, or, where
// that is left to kAuto, as `found` says, blocks spread evenly; and whether it
// is not kept, but made again, which only `found` says. Never both. Pure.
struct BlockActivations {
  std::vector<bool> stored, recomputed;
};
BlockActivations PlaceActivations(const Layout& layout,
                                  const OffloadRules& rules,
                                  const AutoPlace& found = {});

// The first of the rows that matches no parameter of the registry.
std::optional<size_t> RowWithoutMatch(const ParamRegistry& registry,
                                      const OffloadRules& rules);

}  // namespace delink
