// Arguments of the attention kernels. Included by arguments.h; its contract,
// types and names of dimensions apply here too.
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
// h / (H / Hkv)). Query i sees keys 0 .. i + (Tk - Tq), and with a window W > 0
// only the last W of these. `positions` are those of the keys: with them query
// i sees no key before its own document, whose first key is
// i + (Tk - Tq) - positions[b, i + (Tk - Tq)]. Finite values in one document
// then change no bit of another document's o, lse, dq, dk and dv.
//   o = softmax(scale q k^T) v, lse = log sum exp(scale q k^T)
// Tiled with an online softmax (Dao et al., "FlashAttention", 2022), so the
// full scores are never in memory. Tk >= Tq, H a multiple of Hkv.
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
  // False: the order of sums may differ between calls if that is faster.
  bool deterministic = true;
};

}  // namespace delink
