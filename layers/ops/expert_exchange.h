// Tokens at the ranks that have the experts they chose (VisitGroups::expert,
// rank() of size() equal ranges of the experts):
//
//   at = ToExperts(x, r)
//   ... Dispatch(at.x, at.r) ...
//   y = FromExperts(Combine(rows, at.r, at.x.shape()), at, shape)
//
// In one of three ways (VisitGroups::same_tokens, VisitInputs::expert_room):
//
//   gather      Every rank gathers all tokens and choices, computes the rows of
//               its own experts and adds up those of each token; the sums of
//               ranks are reduce-scattered. A token's outputs are added in the
//               order of its choices on each rank, then in that of ranks.
//   all-to-all  Every rank sends each choice's token to the rank of the expert
//               and adds up what comes back, in the order of choices. Each two
//               ranks have a fixed number of slots for this; choices beyond it
//               count in LossRecord::lost.
//   same tokens Every rank has all tokens already, computes the rows of its own
//               experts and adds up those of each token; the sums of ranks are
//               all-reduced. The order is that of gather.
//
// So shapes are static, and no count leaves the device.
#pragma once

#include "framework/autograd/tape.h"
#include "layers/ops/route.h"

namespace delink::ops {

struct AtExperts {
  Var x;  // [N, D]
  Routing r;
  // Of all-to-all, as AssignSlotsArgs has them for the rank's own tokens.
  Var slots = {}, pairs = {};
};
// Of the rank's own tokens x [..., D]. Without groups().expert the arguments.
AtExperts ToExperts(Var x, const Routing& r);

// To `shape`, [..., D], of the rank's own tokens. Without groups().expert, y is
// of that shape already.
Var FromExperts(Var y, const AtExperts& at, const Shape& shape);

}  // namespace delink::ops
