// The dimensions of causal attention over a packed projection. Private to
// layers/ops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/autograd/tape.h"
#include "layers/kernels/arguments.h"

namespace delink::ops {

// Scratch bytes for as many threads as the device would use.
inline constexpr int kAllThreads = 0;

struct Heads {
  int64_t B, T, H, Hkv, Dh, window;
  const int32_t* positions;  // [B, T], may be null
  int64_t row() const { return (H + 2 * Hkv) * Dh; }
  HeadStrides packed() const { return {T * row(), row()}; }
  HeadStrides output() const { return {T * H * Dh, H * Dh}; }
  // Pairs of a query and a key that it sees, for queries [begin, end) of a row.
  // The first W queries see all tokens before them.
  int64_t pairs(int64_t begin, int64_t end) const {
    return PairsBefore(end) - PairsBefore(begin);
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(Dh)); }

 private:
  int64_t PairsBefore(int64_t n) const {
    const int64_t W = window > 0 ? std::min(window, n) : n;
    return W * (W + 1) / 2 + (n - W) * W;
  }
};

inline Heads HeadsOf(Var qkv, int64_t heads, int64_t kv_heads, int64_t window) {
  DELINK_CHECK_EQ(qkv.shape().rank(), 3);
  DELINK_CHECK(kv_heads > 0 && heads % kv_heads == 0)
      << heads << " heads, " << kv_heads << " key/value heads";
  const int64_t width = heads + 2 * kv_heads;
  DELINK_CHECK_EQ(qkv.dim(2) % width, 0) << "qkv " << qkv.shape();
  DELINK_CHECK_GE(window, 0);
  return {.B = qkv.dim(0),
          .T = qkv.dim(1),
          .H = heads,
          .Hkv = kv_heads,
          .Dh = qkv.dim(2) / width,
          .window = window,
          .positions = qkv.tape().inputs().documents};
}

// The address `elements` elements after x's. Device memory: arithmetic only.
inline void* Offset(const Tensor& x, int64_t elements) {
  return static_cast<char*>(x.data()) + elements * SizeOf(x.dtype());
}

// Causal attention if each rank has a part of each row (VisitGroups::context).
Var ContextAttention(Var qkv, const Heads& heads);

}  // namespace delink::ops
