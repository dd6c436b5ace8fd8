// Dropout (Srivastava et al., 2014) whose mask is a function of (seed, step,
// layer name, global sample number, position). So recompute, resume and every
// parallel layout draw the same mask, and backward needs no copy of it.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"

namespace delink::ops {

// y = keep ? x / (1 - rate) : 0. x [B, T, D], or a rank's own rows of it
// (VisitGroups::sequence), or its columns of all rows (Tape::columns);
// 0 <= rate < 1. `name_hash` is HashName of the layer's path. Returns x itself
// outside training or at rate 0; else needs inputs().step_key and samples.
Var Dropout(Var x, double rate, uint64_t name_hash);

}  // namespace delink::ops
