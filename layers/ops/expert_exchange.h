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
//               and adds up what comes back, in the order of choices. With
//               several VisitGroup::nodes() it sends the token once to the rank
//               at its place of each that has experts of it, which sends it on
//               there; outputs are then added in the order of choices on each,
//               then in that of nodes. Each two ranks have a fixed number of
//               slots for this; choices beyond it count in LossRecord::lost.
//   same tokens Every rank has all tokens already, computes the rows of its own
//               experts and adds up those of each token; the sums of ranks are
//               all-reduced. The order is that of gather.
//
// So shapes are static, and no count leaves the device.
#pragma once

#include <vector>

#include "framework/autograd/tape.h"
#include "framework/autograd/visit_group.h"
#include "layers/ops/route.h"

namespace delink::ops {

// From N tokens with k pairs each to the slots of other ranks, as
// AssignSlotsArgs has them.
struct ExpertHop {
  VisitGroup::Among among;
  int64_t N, k, cap;
  Var slots, pairs;
  // A token goes, once, to each node; else each of its choices to a rank.
  bool once() const { return among == VisitGroup::Among::kNodes; }
};
struct AtExperts {
  Var x;  // [N, D]
  Routing r;
  std::vector<ExpertHop> hops = {};  // of all-to-all: one, or two
};
// Of the rank's own tokens x [..., D]. Without groups().expert the arguments.
AtExperts ToExperts(Var x, const Routing& r);

// To `shape`, [..., D], of the rank's own tokens. Without groups().expert, y is
// of that shape already.
Var FromExperts(Var y, const AtExperts& at, const Shape& shape);

}  // namespace delink::ops
