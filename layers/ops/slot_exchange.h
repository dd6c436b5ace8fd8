// Ranks exchange the slots that their tokens have taken with each other
// (AssignSlotsArgs), part by part. An exchange begins in one op and ends in
// another, in forward and in backward; ops between them run meanwhile.
//
//   own = ToSlots(x, hop)                 [parts ranks cap, W]
//   SlotsToRanks there(own, hop)          there.Begin(part): others' slots are
//   x = there.End(part)                     under way, [ranks cap, W]
//
//   SlotsFromRanks back(hop)              back.Begin(y, part): to their owners
//   y = FromSlots(back.End(), hop, ...)   [parts ranks cap, W] to tokens
//
// Parts begin and end in order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/autograd/visit_group.h"

namespace delink::ops {

// From N tokens with k pairs each to the slots of other ranks, as
// AssignSlotsArgs has them.
struct ExpertHop {
  VisitGroup* group;
  VisitGroup::Among among;
  int64_t parts, N, k, cap;
  Var slots, pairs;

  int ranks() const { return group->CountOf(among); }
  // Those of one part.
  int64_t rows() const { return ranks() * cap; }
  // A token goes, once, to each node; else each of its choices to a rank.
  bool once() const { return among == VisitGroup::Among::kNodes; }
};

// The rows of x [N, W] in the slots that they take. `remakes`: they are not
// kept for backward.
Var ToSlots(Var x, const ExpertHop& hop, bool remakes);
// Of each token the sum of its slots, in the order of its pairs: to `shape`,
// [..., W] of N tokens.
Var FromSlots(Var own, const ExpertHop& hop, const Shape& shape);

class SlotsInFlight;

class SlotsToRanks {
 public:
  // `own` [parts rows, W], which no other op reads. `remakes`: what arrives is
  // not kept for backward, but sent again.
  SlotsToRanks(Var own, const ExpertHop& hop, bool remakes);
  void Begin(int part);
  Var End(int part);

 private:
  Var own_;
  bool remakes_;
  int64_t rows_;
  std::vector<Var> arriving_;
  std::shared_ptr<SlotsInFlight> flight_;
};

class SlotsFromRanks {
 public:
  explicit SlotsFromRanks(const ExpertHop& hop) : hop_(hop) {}
  // y [rows, W], which no other op reads.
  void Begin(Var y, int part);
  // After all parts began. In backward, `prefetch` are under way with them.
  Var End(const std::vector<Var>& prefetch);

 private:
  ExpertHop hop_;
  Var all_;
  std::vector<Var> parts_;
  std::shared_ptr<SlotsInFlight> flight_;
};

}  // namespace delink::ops
