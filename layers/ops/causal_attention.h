// Causal self-attention with grouped queries (Ainslie et al., "GQA", 2023), as
// one op from the packed projection to the heads' outputs. The scores are never
// whole in memory; backward keeps the log-sum-exp of each row instead.
//
// qkv [B, T, (H + 2 Hkv) Dh]: each token has all its queries, then all keys,
// then all values. Query head h reads key/value head h / (H / Hkv). Scores are
// scaled by 1 / sqrt(Dh). There is no dropout on attention probabilities.
//
// With a context group (VisitGroups) a rank has a part of each row: of 2 c
// chunks for c ranks number i and then number 2 c - 1 - i, rank i of the group.
// Keys and values of all are exchanged; documents are those of all tokens.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"

namespace delink::ops {

// Token t sees tokens 0 .. t, of these with a window of W > 0 the last W (as in
// Mistral 7B), and with inputs().documents none before its own document. Result
// [B, T, H Dh].
Var CausalAttention(Var qkv, int64_t heads, int64_t kv_heads,
                    int64_t window = 0);

// Generation: the queries of qkv are the last T of `keys` tokens, whose keys
// and values are in the first `keys` rows of `cache` [B, Tmax, 2 Hkv Dh]
// (keys, then values). No backward.
Var CachedAttention(Var qkv, int64_t heads, int64_t kv_heads,
                    const Tensor& cache, int64_t keys, int64_t window = 0);

}  // namespace delink::ops
