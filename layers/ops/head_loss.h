// The head and its loss as one op that never has all logits in memory.
//
// Rows (tokens) are processed in chunks. The op computes the logits of a chunk,
// overwrites them with the loss's gradient, and computes the chunk's share of
// the gradients of x and w at once, so backward recomputes nothing. The size of
// a chunk depends only on shapes and the kind of device, so the same shape
// gives the same bits.
//
// If the head is sharded over ranks (groups().tensor), each rank computes the
// logits of its piece of the vocabulary (EvenPiece). For each chunk the ranks
// exchange their largest logits and sums of exponentials, never logits. `vocab`
// is then the whole vocabulary; it may be 0 if w has all of it.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// The target that is not counted.
inline constexpr int32_t kIgnoreIndex = -1;

// Elements between rows of logits. Every row begins at a multiple of 16 bytes
// for any V, as a GPU's fast products need it.
int64_t HeadLossPitch(int64_t V, DType dtype);
// Rows of [N, V] logits that are computed together.
int64_t HeadLossChunk(int64_t N, int64_t V, DType dtype, DeviceKind device);

// x [B, T, D], w [V, D]. Adds the cross-entropy of softmax(x w^T) against
// inputs().targets, and the number of counted targets, to inputs().loss. If
// the tape records, writes the gradient of w now and that of x in backward.
// Both are gradients of the sum over tokens, not of the mean.
//
// With z_weight > 0 the loss to minimise is, for each counted token,
//   cross-entropy + z_weight * (log sum exp of its logits)^2
// (the z-loss of Chowdhery et al., "PaLM", 2022), and the gradients are of this
// sum. inputs().loss->loss_sum is still cross-entropy alone, so that losses can
// be compared with other runs; the second term is added to ->z_sum.
//
// If there are several ranks, only the first adds to the loss. Each rank's
// gradient of x is a part of a sum; the GatherRows that made x adds them up.
void HeadLoss(Var x, Param& w, double z_weight = 0, int64_t vocab = 0);

// x w^T: [B, T, V]. Every rank gets the whole vocabulary.
Var HeadLogits(Var x, Param& w, int64_t vocab = 0);

}  // namespace delink::ops
