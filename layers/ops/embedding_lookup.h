// Rows of a token table plus rows of a position table. If the token table is
// sharded over ranks (groups().tensor), each rank has some of its rows, and the
// embedding of a token is the sum of all ranks' results.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// y[b, t] = w[token[b, t]] (+ p[first_position + t], or p[positions[b, t]] with
// inputs().positions). tokens [B, T] i32, each in [0, V); w [V, D]; p [Tmax, D]
// or null, inputs().first_position + T <= Tmax; y [B, T, D].
Var EmbeddingLookup(Var tokens, Param& w, Param* p);

// w is the rows of the table from first_token on. y[b, t] is 0 if another rank
// has the token's row.
Var EmbeddingPart(Var tokens, Param& w, int64_t first_token);

// y = x + p[position of the token]. x [B, T, D]. Under groups().sequence x is
// this rank's own rows, [1, B T / n, D], and inputs().positions is set.
Var AddPositions(Var x, Param& p);

}  // namespace delink::ops
