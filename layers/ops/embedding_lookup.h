// Rows of a table, by token, plus rows of another, by position.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// y[b, t] = w[token[b, t]] (+ p[first_position + t], or p[positions[b, t]] with
// inputs().positions). tokens [B, T] i32, each in [0, V); w [V, D]; p [Tmax, D]
// or null, inputs().first_position + T <= Tmax; y [B, T, D].
Var EmbeddingLookup(Var tokens, Param& w, Param* p);

}  // namespace delink::ops
