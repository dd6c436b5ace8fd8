// Which weights of a checkpoint are host-resident while it is used.
#pragma once

#include "absl/status/statusor.h"
#include "framework/module/layout.h"
#include "framework/tensor/dtype.h"
#include "offload/plan/offload_rules.h"

namespace delink {

// The layout with weights of `dtype` placed as the rules say. Rules of other
// planes and of updates are ignored. With a device budget, weights stay on the
// device as long as they and the copies of the others (StreamedWeights) take at
// most half of it on each rank; passes use the other half. Only weights of
// blocks become host-resident for a budget.
absl::StatusOr<Layout> WithHomesOfWeights(const Layout& layout,
                                          OffloadRules rules, DType dtype);

}  // namespace delink
