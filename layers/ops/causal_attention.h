// Causal self-attention with grouped queries (Ainslie et al., "GQA", 2023), as
// one op from the packed projection to the heads' outputs. The full scores are
// never in memory; the log-sum-exp of each row is saved for backward instead.
//
// qkv [B, T, (H + 2 Hkv) Dh]: each token has all its queries, then all keys,
// then all values. Query head h reads key/value head h / (H / Hkv). Scores are
// scaled by 1 / sqrt(Dh). There is no dropout on attention probabilities.
//
// With a context group (VisitGroups) of c ranks, each row is cut into 2 c
// chunks, and rank i of the group has chunk i followed by chunk 2 c - 1 - i.
// The ranks exchange all keys and values. `documents` covers all tokens.
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"

namespace delink::ops {

// Token t sees tokens 0 .. t. With a window W > 0 it sees only the last W of
// them (as in Mistral 7B); with inputs().documents it sees none before its own
// document. Returns [B, T, H Dh].
Var CausalAttention(Var qkv, int64_t heads, int64_t kv_heads,
                    int64_t window = 0);

// Generation: the queries of qkv are the last T of `keys` tokens, whose keys
// and values are in the first `keys` rows of `cache` [B, Tmax, 2 Hkv Dh]
// (keys, then values). No backward.
Var CachedAttention(Var qkv, int64_t heads, int64_t kv_heads,
                    const Tensor& cache, int64_t keys, int64_t window = 0);

}  // namespace delink::ops
