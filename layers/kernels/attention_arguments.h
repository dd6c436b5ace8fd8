// What attention's kernels are given. Included by arguments.h, whose contract,
// types and names of dimensions these have.
#pragma once

#include <cstdint>

namespace delink {

// Where the vector of head h at (sample b, token t) starts, in elements:
// b * batch + t * row + h * Dh.
struct HeadStrides {
  int64_t batch;
  int64_t row;

  // clang-tidy 14 takes the 0 of a defaulted comparison for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const HeadStrides&, const HeadStrides&) = default;
};

// Causal attention with grouped queries (query head h reads key/value head
// h / (H / Hkv)): query i sees keys 0 .. i + (Tk - Tq), of these with a window
// of W > 0 the last W. With `positions`, of the keys, query i sees none before
// its own document, which begins positions[b, i + (Tk - Tq)] before it; what
// stands in other documents then changes no bit of o, lse and dq, nor what they
// get of dk and dv, as long as it is finite.
//   o = softmax(scale q k^T) v, lse = log sum exp(scale q k^T)
// Tiled with an online softmax (Dao et al., "FlashAttention", 2022): the
// scores are never whole in memory. Tk >= Tq, H a multiple of Hkv.
struct AttentionForwardArgs {
  int64_t B, H, Hkv, Dh, Tq, Tk;
  double scale;
  int64_t window = 0;
  const int32_t* positions = nullptr;  // [B, Tk], may be null
  int64_t positions_row = 0;           // elements between its rows; 0: Tk
  const void* q;                       // [B, Tq, H, Dh] by q_strides
  HeadStrides q_strides;
  const void* k;  // [B, Tk, Hkv, Dh] by kv_strides
  const void* v;  // the same
  HeadStrides kv_strides;
  void* o;  // [B, Tq, H, Dh] by o_strides
  HeadStrides o_strides;
  void* lse;      // [B, H, Tq] S, may be null
  void* scratch;  // 64-byte aligned; see attention_forward_scratch_bytes
  int64_t scratch_bytes;
};
struct AttentionBackwardArgs {
  int64_t B, H, Hkv, Dh, Tq, Tk;
  double scale;
  int64_t window = 0;
  const int32_t* positions = nullptr;  // [B, Tk], may be null
  int64_t positions_row = 0;           // elements between its rows; 0: Tk
  const void* q;
  HeadStrides q_strides;  // of dq too
  const void* k;
  const void* v;
  HeadStrides kv_strides;  // of dk and dv too
  const void* o;
  const void* d_o;
  HeadStrides o_strides;
  const void* lse;  // [B, H, Tq] S
  void* dq;
  void* dk;
  void* dv;
  void* delta;    // [B, H, Tq] S, scratch: sum over Dh of o * d_o
  void* scratch;  // 64-byte aligned; see attention_backward_scratch_bytes
  int64_t scratch_bytes;
  // False: the order of sums may differ from call to call where that is faster.
  bool deterministic = true;
};

}  // namespace delink
