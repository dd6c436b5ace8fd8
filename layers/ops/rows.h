// What goes into products that are cut over the ranks of groups().tensor, and
// what comes out of them.
//
//   columns of x w^T    Linear(GatherRows(x), w's rows), a rank's own columns
//   a sum over ranks    ScatterRows(Linear(y, w's columns)), of all columns
//
// Between two such pairs each rank has its own rows of the activations
// (VisitGroups::sequence), or all have all. The other way round, for gradients,
// each is the other. Without groups().tensor both are the value itself.
#pragma once

#include "framework/autograd/tape.h"

namespace delink::ops {

// x is [1, N / n, D], this rank's rows of the N tokens of all n, and becomes
// [B, T, D], B being inputs().sequences; its gradient there is a part of a sum.
// Not under `sequence`: x, whatever its shape.
// All rows are not kept for backward, but gathered again.
Var GatherRows(Var x);

// The sum over ranks of y [B, T, D], this rank's rows of it: [1, N / n, D]. Not
// under `sequence`: all of it, of the shape of y and in its memory, whose old
// value is gone: y must be an op's output that nobody else reads or saves.
// n divides B T.
Var ScatterRows(Var y);

}  // namespace delink::ops
