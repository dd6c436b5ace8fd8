// The arguments of each kernel: plain structs, also for CUDA device code.
//
// Contract for all kernels
// - Tensors are row-major. `void*` members point to the table's dtype T;
//   statistics marked S and gradients of parameters marked P are f32 where T is
//   f32 or narrower, else f64. Memory is the device's; the structs own nothing.
// - Gradients that are kept in bf16 (run.gradients) use the bf16 table. A flag
//   in the arguments makes a matrix's gradient T; other gradients are rounded
//   by RoundGradientArgs. Each call sums in f32, adds the value in memory and
//   rounds once.
// - If T is bf16, inputs are widened to f32 when they are read, everything is
//   computed and summed in f32 or better, and an output is rounded once, when
//   it is stored: to the nearest number, ties to even. NaN stays NaN, and
//   numbers that are too large become infinite. `accumulate` adds before that
//   rounding. A matrix product may treat numbers below 2^-126 as 0. Attention
//   may round probabilities and the gradients of scores to bf16 before it
//   multiplies by them.
// - Gradients of activations are written (`=`). Gradients of parameters obey
//   `accumulate`: false writes the whole tensor, true adds to it (`+=`).
// - An elementwise output may be exactly one of its inputs; otherwise buffers
//   do not overlap.
// - The same call gives the same bits for any number of threads. A row
//   (token) of an output depends on no other row unless the formula says so.
// - If a dimension is 0, a call does nothing, but it still zeroes parameter
//   gradients when `accumulate` is false. Pointers that may be null say so.
// - `positions` [B, T] is for rows that hold several documents: the position of
//   each token in its document, from 0. positions[b, 0] is 0, and
//   positions[b, t + 1] is 0 or positions[b, t] + 1. Null: a row is one
//   document. Its first token is at first_position if the struct has that
//   member; with `positions`, first_position is 0.
// Dimensions: N rows (tokens), B samples, T positions, D width, V vocabulary,
// H query heads, Hkv key/value heads, Dh width of a head.
#pragma once

#include <cstdint>

#include "framework/base/rng.h"
#include "layers/kernels/attention_arguments.h"
#include "layers/kernels/loss_arguments.h"

namespace delink {

// C = op(A) op(B) [+ C] [+ bias], op(A) [m, k], op(B) [k, n], C [m, n].
// A transposed A is stored [k, m], a transposed B [n, k]. If C is a parameter's
// gradient it may be of type P, and then there is no bias.
struct MatmulArgs {
  int64_t m, n, k;
  bool transpose_a = false;
  bool transpose_b = false;
  const void* a;
  int64_t lda;  // elements between stored rows
  const void* b;
  int64_t ldb;
  void* c;
  int64_t ldc;
  const void* bias = nullptr;  // [n], may be null
  bool accumulate = false;
  bool c_is_gradient = false;  // C is P, not T
};

// kErf: x * Phi(x). kTanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
enum class GeluForm : uint8_t { kTanh, kErf };

// C = gelu(op(A) op(B) [+ bias]). GELU may read the sum before or after it is
// rounded to T; `pre` holds the rounded sum. C is [m, n] without gaps, of type
// T, and is not accumulated.
struct MatmulGeluArgs {
  MatmulArgs product;
  GeluForm form;
  void* pre;  // [m, n]: the sum
};
// C = op(A) op(B) * gelu'(pre); the matrix product may be rounded to T first.
// C as above, without a bias.
struct MatmulGeluBackwardArgs {
  MatmulArgs product;
  GeluForm form;
  const void* pre;  // [m, n]
};
// For y = x w^T + b, from dy = A [k, m] and x = B: C = dw, and db = the sums of
// dy over rows. A is transposed and without gaps, C is P; `product.accumulate`
// applies to C and db.
struct MatmulBiasGradArgs {
  MatmulArgs product;
  void* db;  // [m] P
};

struct BiasGradArgs {
  int64_t N, D;
  const void* dy;  // [N, D]
  void* db;        // [D] P
  bool accumulate = false;
};

// y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(variance + eps). If forward's
// `add` is set, x + add, rounded to T, is stored in `sum` and normalised
// instead of x. If backward's `add` is set, it is added to dx.
struct LayerNormForwardArgs {
  int64_t N, D;
  double eps;
  const void* x;              // [N, D]
  const void* w;              // [D]
  const void* b;              // [D], may be null
  void* y;                    // [N, D]
  void* mean;                 // [N] S, may be null together with rstd
  void* rstd;                 // [N] S
  const void* add = nullptr;  // [N, D], may be null
  void* sum = nullptr;        // [N, D], where there is `add`
};
struct LayerNormBackwardInputArgs {
  int64_t N, D;
  const void* dy;             // [N, D]
  const void* x;              // [N, D]
  const void* w;              // [D]
  const void* mean;           // [N] S
  const void* rstd;           // [N] S
  void* dx;                   // [N, D], may be dy or add
  const void* add = nullptr;  // [N, D], may be null
};
struct LayerNormBackwardWeightArgs {
  int64_t N, D;
  const void* dy;    // [N, D]
  const void* x;     // [N, D]
  const void* mean;  // [N] S
  const void* rstd;  // [N] S
  void* dw;          // [D] P
  void* db;          // [D] P, may be null
  bool accumulate = false;
};

// y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps); `add` as for layer norm.
struct RmsNormForwardArgs {
  int64_t N, D;
  double eps;
  const void* x;              // [N, D]
  const void* w;              // [D]
  void* y;                    // [N, D]
  void* rstd;                 // [N] S, may be null
  const void* add = nullptr;  // [N, D], may be null
  void* sum = nullptr;        // [N, D], where there is `add`
};
struct RmsNormBackwardInputArgs {
  int64_t N, D;
  const void* dy;             // [N, D]
  const void* x;              // [N, D]
  const void* w;              // [D]
  const void* rstd;           // [N] S
  void* dx;                   // [N, D], may be dy or add
  const void* add = nullptr;  // [N, D], may be null
};
struct RmsNormBackwardWeightArgs {
  int64_t N, D;
  const void* dy;    // [N, D]
  const void* x;     // [N, D]
  const void* rstd;  // [N] S
  void* dw;          // [D] P
  bool accumulate = false;
};

// RMS norm of heads. In each row of x [N, (H + 2 Hkv) Dh] the first H heads use
// q_w and the next Hkv heads k_w; the last Hkv heads are copied.
struct QkNormForwardArgs {
  int64_t N, H, Hkv, Dh;
  double eps;
  const void* x;    // [N, (H + 2 Hkv) Dh]
  const void* q_w;  // [Dh]
  const void* k_w;  // [Dh]
  void* y;          // like x
  void* rstd;       // [N, H + Hkv] S, may be null
};
struct QkNormBackwardInputArgs {
  int64_t N, H, Hkv, Dh;
  const void* dy;    // [N, (H + 2 Hkv) Dh]
  const void* x;     // like dy
  const void* q_w;   // [Dh]
  const void* k_w;   // [Dh]
  const void* rstd;  // [N, H + Hkv] S
  void* dx;          // like dy, may be dy
};
// Gradient of one weight, which the `heads` heads from `first_head` on use.
struct QkNormBackwardWeightArgs {
  int64_t N, Dh;
  int64_t row_heads;   // H + 2 Hkv
  int64_t rstd_heads;  // H + Hkv
  int64_t first_head, heads;
  const void* dy;    // [N, row_heads Dh]
  const void* x;     // like dy
  const void* rstd;  // [N, rstd_heads] S
  void* dw;          // [Dh] P
  bool accumulate = false;
};

struct GeluForwardArgs {
  int64_t count;
  GeluForm form;
  const void* x;
  void* y;
};
struct GeluBackwardArgs {
  int64_t count;
  GeluForm form;
  const void* dy;
  const void* x;
  void* dx;
};

// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
struct SwiGluForwardArgs {
  int64_t N, F;
  const void* x;  // [N, 2 F]: each row is the gate, then up
  void* y;        // [N, F]
};
struct SwiGluBackwardArgs {
  int64_t N, F;
  const void* dy;  // [N, F]
  const void* x;   // [N, 2 F]
  void* dx;        // [N, 2 F], may be x
};

// Which elements of a head form the i-th of n pairs: i and i + n (GPT-NeoX,
// Hugging Face's Llama), or 2 i and 2 i + 1 (GPT-J, Meta's Llama).
enum class RotaryPairing : uint8_t { kHalf, kInterleaved };
inline constexpr int kMaxRotaryPairs = 128;
struct RotaryAngles {
  RotaryPairing pairing;
  int pairs;  // <= kMaxRotaryPairs
  double
      inverse_frequency[kMaxRotaryPairs];  // of each pair, in radians a token
};

// The first 2 n elements of a head at position p are n pairs (a, b). Each pair
// becomes (a cos - b sin, a sin + b cos) of p * inverse_frequency. `inverse`
// rotates back, which is also the gradient. Other elements stay. In place.
struct RotaryArgs {
  int64_t B, T, Dh;
  int64_t heads;  // to rotate, at the start of each row
  int64_t row;    // elements of a token
  int64_t first_position = 0;
  const int32_t* positions = nullptr;  // [B, T], may be null
  const RotaryAngles* angles;  // host memory, read before the call returns
  bool inverse = false;
  void* x;  // [B, T, row]
};

// y = a + b.
struct AddArgs {
  int64_t count;
  const void* a;
  const void* b;
  void* y;
};

// y += x.
struct AccumulateArgs {
  int64_t count;
  const void* x;
  void* y;
};

// y = x, widened.
struct WidenArgs {
  int64_t count;
  const void* x;  // [count] T
  void* y;        // [count] S
};

// y (=|+=) x, a gradient that is kept in bf16.
struct RoundGradientArgs {
  int64_t count;
  const void* x;  // [count] P
  void* y;        // [count] bf16
  bool accumulate = false;
};

// y = keep ? x / (1 - rate) : 0; backward is the same kernel on dy. Element
// (b, t, d) has index i = p * D + d, p = first_position + t or places[t], and
// is kept when Uniform(Philox(key, i / 4, 0)[i % 4]) >= float(rate), where key
// = Fold(Fold(*step_key, name_hash), uint64(sample[b])). 0 <= rate < 1.
struct DropoutArgs {
  int64_t B, T, D;
  double rate;
  const RngKey* step_key;  // [1], device memory
  uint64_t name_hash;
  const int64_t* sample;  // [B] global sample numbers, device memory
  int64_t first_position = 0;
  const int32_t* places = nullptr;  // [T], may be null
  // If x and y have only some of the B T tokens: the number of the first one
  // and how many there are. -1: they have all tokens.
  int64_t first_row = 0, rows = -1;
  // If x and y have only D of `width` columns: the first of these, and the
  // elements between rows in memory. width 0: they have all columns, and
  // pitch is ignored.
  int64_t width = 0, first_column = 0, pitch = 0;
  const void* x;  // [B, T, D], or [rows, D]
  void* y;        // like x

  int64_t all_columns() const { return width > 0 ? width : D; }
  int64_t row_stride() const { return width > 0 ? pitch : D; }
};

// y[b, t] = w[token[b, t]] (+ p[first_position + t], or p[positions[b, t]]).
// `w` is rows [first_token, first_token + V) of a table. If `partial`, tokens
// may be outside these rows and get zeros; `p` is null then.
struct EmbeddingForwardArgs {
  int64_t B, T, D, V;
  int64_t first_position = 0;
  const int32_t* positions = nullptr;  // [B, T], may be null
  const int32_t* tokens;               // [B, T]
  const void* w;                       // [V, D]
  const void* p;  // [>= first_position + T, D], may be null
  void* y;        // [B, T, D]
  int64_t first_token = 0;
  bool partial = false;
};
struct EmbeddingBackwardWeightArgs {
  int64_t N, D, V;
  const int32_t* tokens;  // [N]
  const void* dy;         // [N, D]
  void* dw;               // [V, D] P; rows of absent tokens are zeroed on `=`
  bool accumulate = false;
  bool narrow = false;      // dw is T, not P
  int64_t first_token = 0;  // as in EmbeddingForwardArgs
  bool partial = false;     // tokens of other rows add nothing
};
// Only for rows without `positions`. With these, EmbeddingBackwardWeight is
// used, and positions are its tokens.
struct EmbeddingBackwardPositionArgs {
  int64_t B, T, D, Tmax;
  int64_t first_position = 0;
  const void* dy;  // [B, T, D]
  void* dp;        // [Tmax, D] P; rows without a token are zeroed on `=`
  bool accumulate = false;
  bool narrow = false;  // dp is T, not P
};

}  // namespace delink
