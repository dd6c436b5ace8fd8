// How the router's choices become rows of the experts' products, and which of
// them a capacity drops (route.h).
#pragma once

#include <cstdint>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/autograd/visit_group.h"
#include "framework/module/param.h"
#include "layers/ops/route.h"

namespace delink::ops {

// Arguments of a routed visit that closures keep.
struct Routed {
  RouteConfig c;
  int64_t N, E;
  const Param* loads;  // null: those of the tokens themselves
  Var logits, ids, gates;
  double* sums;  // [E + kRouteSums], or null

  double* Sum(RouteSum which) const {
    return sums + E + static_cast<int64_t>(which);
  }
};

// The first of this rank's N tokens among those of groups().tensor.
int64_t FirstToken(const Tape& tape, int64_t N);
// Of this rank's N tokens; null if there are none.
const int32_t* TargetsOf(const Tape& tape, int64_t N);
// The groups whose ranks have tokens of this micro-batch, the innermost first.
std::vector<VisitGroup*> RanksOfTokens(const Tape& tape);

// Routing::limit, of the micro-batch to which this rank's N tokens belong.
int64_t MostOfExpert(const Tape& tape, const RouteConfig& c, int64_t N,
                     int64_t E);

// Writes the offsets, rows, pairs and, if defined, ids of `to`, and adds to the
// sums of the step.
void AssignRows(const Routed& r, const Routing& to);

}  // namespace delink::ops
