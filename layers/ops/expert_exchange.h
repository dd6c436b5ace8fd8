// Tokens at the ranks that have the experts they chose (VisitGroups::expert,
// rank() of size() equal ranges of the experts):
//
//   ExpertExchange exchange(x, r);
//   ... what needs no expert ...
//   for (int part = 0; part < exchange.parts(); ++part) {
//     at = exchange.Arrive(part);
//     ... Dispatch(at.x, at.r) ...
//     exchange.Return(Combine(rows, at.r, at.x.shape()), part);
//   }
//   y = exchange.Result(x.shape());
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
//
// With VisitInputs::expert_overlap all-to-all cuts each rank's experts into two
// equal ranges, if their number is even. The rows of one are under way while
// the other's are computed, in forward and in backward; what comes before
// Arrive runs under the first exchange. An expert has the same rows in the same
// order, and sums of tokens are those of the whole, so no bit depends on it.
#pragma once

#include <memory>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/autograd/visit_group.h"
#include "layers/ops/route.h"
#include "layers/ops/slot_exchange.h"

namespace delink::ops {

struct AtExperts {
  Var x;  // [N, D]
  Routing r;
};

class ExpertExchange {
 public:
  // Of the rank's own tokens x [..., D]. Without groups().expert nothing is
  // exchanged, and the only part has the arguments.
  ExpertExchange(Var x, const Routing& r);

  // Whether there is anything that work before Arrive could overlap.
  bool overlaps() const;
  int parts() const;
  // Parts arrive and return in order.
  AtExperts Arrive(int part);
  void Return(Var y, int part);  // of the shape of the part's x
  // To `shape`, [..., D], of the rank's own tokens.
  Var Result(const Shape& shape);

 private:
  // A hop under way; the next begins where it ends.
  struct Hop {
    ExpertHop hop;
    Routing from;
    SlotsToRanks ids, gates, tokens;
    SlotsFromRanks back;
    std::vector<Var> arrived = {};  // tokens, the last part first
  };
  bool sends() const { return !among_.empty(); }
  void BeginHop(Var x, const Routing& r);
  AtExperts EndHop(int part);

  VisitGroup* group_;
  std::vector<VisitGroup::Among> among_ = {};  // of the hops
  std::vector<Hop> hops_;
  AtExperts all_;  // unless tokens are sent
  Var y_;
};

}  // namespace delink::ops
