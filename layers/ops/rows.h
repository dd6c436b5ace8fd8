// Inputs and outputs of products that are sharded over the ranks of
// groups().tensor.
//
//   columns of x w^T    Linear(GatherRows(x), w's rows), a rank's own columns
//   a sum over ranks    ScatterRows(Linear(y, w's columns)), of all columns
//
// Between two such pairs each rank has its own rows of the activations
// (VisitGroups::sequence), or every rank has all rows. The backward of either
// is the other's forward. Without groups().tensor both return their argument.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/autograd/visit_group.h"
#include "framework/tensor/shape.h"

namespace delink::ops {

// x [1, N / n, D] is this rank's rows of the N tokens of n ranks. The result is
// [B, T, D] with B = inputs().sequences; its gradient on a rank is a part of a
// sum. Without `sequence` the result is x, of any shape.
// The gathered rows are not kept for backward, but gathered again.
Var GatherRows(Var x);

// This rank's rows, [1, N / n, D], of the sum over ranks of y [B, T, D].
// Without `sequence` the result is the whole sum and overwrites y, so y must be
// an op's output that nothing else reads or saves. n divides B T.
Var ScatterRows(Var y);

// The same over any group, to a shape: x is this rank's piece of what is
// gathered, y as large as all pieces.
Var GatherPieces(Var x, VisitGroup& group, const Shape& all);
Var ScatterPieces(Var y, VisitGroup& group, const Shape& own);

// GatherRows and ScatterRows without `sequence`, over any group.
Var HandOn(Var x, VisitGroup& group);
Var SumOver(Var y, VisitGroup& group);

// Of memory alone. Copies this rank's piece to its place in `all` and gathers
// the others; writes this rank's piece of the sum over ranks of `all`.
void GatherTensor(Device& device, Stream& stream, VisitGroup& group,
                  const Tensor& own, const Tensor& all);
void ScatterTensor(VisitGroup& group, const Tensor& all, const Tensor& own);

}  // namespace delink::ops
