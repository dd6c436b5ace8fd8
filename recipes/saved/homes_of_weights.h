// Where those who use a checkpoint have its weights at home.
#pragma once

#include "absl/status/statusor.h"
#include "framework/module/layout.h"
#include "framework/tensor/dtype.h"
#include "offload/plan/offload_rules.h"

namespace delink {

// The layout with weights of `dtype` at home as the rules say of them; what the
// rules say of other planes, and of who updates, counts for nothing. What they
// leave to a budget is on the device as far as the weights there and copies of
// the others (StreamedWeights) take at most half of it on each rank: the other
// half is for what passes need besides. Blocks alone are on the host for that.
absl::StatusOr<Layout> WithHomesOfWeights(const Layout& layout,
                                          OffloadRules rules, DType dtype);

}  // namespace delink
