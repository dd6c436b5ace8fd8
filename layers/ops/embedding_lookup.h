// Rows of a table, by token, plus rows of another, by position. Cut over ranks
// (groups().tensor), the table of tokens has some rows on each, and what each
// makes of a token is a part of a sum.
#pragma once

#include "framework/autograd/tape.h"
#include "framework/module/param.h"

namespace delink::ops {

// y[b, t] = w[token[b, t]] (+ p[first_position + t], or p[positions[b, t]] with
// inputs().positions). tokens [B, T] i32, each in [0, V); w [V, D]; p [Tmax, D]
// or null, inputs().first_position + T <= Tmax; y [B, T, D].
Var EmbeddingLookup(Var tokens, Param& w, Param* p);

// Of the table w is the rows from number first_token on: y[b, t] is 0 where
// another rank has the token's.
Var EmbeddingPart(Var tokens, Param& w, int64_t first_token);

// y = x + p[position of the token]. x [B, T, D], or under groups().sequence
// this rank's own rows, [1, B T / n, D], and then inputs().positions is given.
Var AddPositions(Var x, Param& p);

}  // namespace delink::ops
