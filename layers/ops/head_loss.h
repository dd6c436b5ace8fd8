// The head and its loss as one op that never has all logits in memory.
//
// Rows (tokens) go through in chunks. The logits of a chunk are computed, turn
// in place into the loss's gradient, and give at once the chunk's share of the
// gradients of x and w: nothing is left to recompute in backward. The size of a
// chunk depends on shapes and the kind of device alone, so the same shape gives
// the same bits.
//
// Cut over ranks (groups().tensor), each has the logits of its piece of the
// vocabulary (EvenPiece), and of each chunk the ranks exchange their largest
// logits and their sums of exponentials: never logits. `vocab` is then the
// whole vocabulary; it may be 0 where w has all of it.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// The target that is not counted.
inline constexpr int32_t kIgnoreIndex = -1;

// Elements between rows of logits: every row begins at a multiple of 16 bytes,
// whatever V is, as a GPU's fast products want it.
int64_t HeadLossPitch(int64_t V, DType dtype);
// Rows of [N, V] logits that are computed together.
int64_t HeadLossChunk(int64_t N, int64_t V, DType dtype, DeviceKind device);

// x [B, T, D], w [V, D]. Adds the cross-entropy of softmax(x w^T) against
// inputs().targets, and the number of counted targets, to inputs().loss. When
// the tape records, writes the gradient of w now and that of x in backward;
// both of the sum over tokens, not of the mean.
//
// With z_weight > 0 what is minimised is, for each counted token,
//   cross-entropy + z_weight * (log sum exp of its logits)^2
// (the z-loss of Chowdhery et al., "PaLM", 2022): the gradients are of this
// sum. inputs().loss->loss_sum stays cross-entropy alone, so that losses
// compare with those of other runs; the second term goes to ->z_sum.
//
// Of several ranks the first adds to the loss; each one's gradient of x is a
// part of a sum (GatherRows, which x comes from).
void HeadLoss(Var x, Param& w, double z_weight = 0, int64_t vocab = 0);

// x w^T: [B, T, V], on each rank of all the vocabulary.
Var HeadLogits(Var x, Param& w, int64_t vocab = 0);

}  // namespace delink::ops
