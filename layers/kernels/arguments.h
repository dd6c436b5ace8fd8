// What each kernel is given: plain structs that a CUDA device file reads too.
//
// Contract, for all of them
// - Tensors are row-major. `void*` members point to the table's dtype T;
//   statistics marked S and gradients of parameters marked P are f32 where T is
//   f32 or narrower, else f64. Memory is the device's; nothing is owned.
// - Gradients that are kept in bf16 (run.gradients) come from the table of
//   bf16: of matrices as T, with a flag in the arguments, of others by way of
//   RoundGradientArgs. Each call sums in f32, adds what is there and rounds
//   once.
// - Where T is bf16, numbers are widened to f32 as they are read, everything is
//   computed and summed in f32 or better, and an output is rounded once, when
//   it is stored: to the nearest number, a tie to the even one. Not-a-number
//   stays that, what is too large becomes infinite. `accumulate` adds before
//   that rounding. A matrix product may take numbers below 2^-126 for 0.
//   Attention may round probabilities, and the gradients of scores, to bf16
//   where it multiplies by them.
// - Gradients of activations are written (`=`). Gradients of parameters obey
//   `accumulate`: false writes the whole tensor, true adds to it (`+=`).
// - An elementwise output may be exactly one of its inputs; otherwise buffers
//   do not overlap.
// - The same call gives the same bits, whatever the number of threads. A row
//   (token) of an output depends on no other row unless the formula says so.
// - A dimension may be 0: then there is nothing to do (parameter gradients are
//   still zeroed when `accumulate` is false). Pointers that may be null say so.
// - `positions` [B, T] is for rows that hold several documents: the place of
//   each token in its own, counted from 0. At [b, 0] stands 0, at [b, t + 1] 0
//   or one more than at [b, t]. Null: a row is one document, whose first token
//   is at first_position where there is one (it is 0 beside positions).
// Dimensions: N rows (tokens), B samples, T positions, D width, V vocabulary,
// H query heads, Hkv key/value heads, Dh width of a head.
#pragma once

#include <cstdint>

#include "framework/base/rng.h"

namespace delink {

// C = op(A) op(B) [+ C] [+ bias], op(A) [m, k], op(B) [k, n], C [m, n].
// A transposed A is stored [k, m], a transposed B [n, k]. C may be of type P,
// as the gradient of a parameter, and then there is no bias.
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

// C = gelu(op(A) op(B) [+ bias]), where gelu is of the sum either as it is or
// rounded to T, as `pre` has it. C is [m, n] without gaps, of type T; nothing
// is accumulated.
struct MatmulGeluArgs {
  MatmulArgs product;
  GeluForm form;
  void* pre;  // [m, n]: the sum
};
// C = op(A) op(B) * gelu'(pre), where the product may be rounded to T before.
// C as above, without a bias.
struct MatmulGeluBackwardArgs {
  MatmulArgs product;
  GeluForm form;
  const void* pre;  // [m, n]
};
// Of y = x w^T + b, from dy = A [k, m] and x = B: C = dw, and db = the sums of
// dy over rows. A is transposed and without gaps, C is P; `product.accumulate`
// is for both.
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

// y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(variance + eps). Where `add`
// is given, what is normalised is not x but x + add, rounded to T, which goes
// to `sum`. Where backward's `add` is given, it is added to dx.
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

// RMS norm of heads: of each row of x [N, (H + 2 Hkv) Dh] the first H heads by
// q_w, the next Hkv by k_w; the last Hkv are copied.
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
// One weight: that of the `heads` heads from `first_head` on.
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
  const void* x;  // [N, 2 F]: of each row the gate, then up
  void* y;        // [N, F]
};
struct SwiGluBackwardArgs {
  int64_t N, F;
  const void* dy;  // [N, F]
  const void* x;   // [N, 2 F]
  void* dx;        // [N, 2 F], may be x
};

// Which elements of a head turn together, of n pairs: i with i + n (GPT-NeoX,
// Hugging Face's Llama), or 2 i with 2 i + 1 (GPT-J, Meta's Llama).
enum class RotaryPairing : uint8_t { kHalf, kInterleaved };
inline constexpr int kMaxRotaryPairs = 128;
struct RotaryAngles {
  RotaryPairing pairing;
  int pairs;  // <= kMaxRotaryPairs
  double
      inverse_frequency[kMaxRotaryPairs];  // of each pair, in radians a token
};

// The first 2 n elements of a head at position p are n pairs (a, b), which
// become (a cos - b sin, a sin + b cos) of p * inverse_frequency; `inverse`
// turns back, which is also the gradient. Other elements stay. In place.
struct RotaryArgs {
  int64_t B, T, Dh;
  int64_t heads;  // that turn, at the start of each row
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
  // x and y may be some of the B T tokens: `rows` from number first_row on;
  // -1: all.
  int64_t first_row = 0, rows = -1;
  const void* x;  // [B, T, D]
  void* y;        // [B, T, D]
};

// y[b, t] = w[token[b, t]] (+ p[first_position + t], or p[positions[b, t]]). Of
// the table rows [first_token, first_token + V) are here; a token of another
// row gets zeros.
struct EmbeddingForwardArgs {
  int64_t B, T, D, V;
  int64_t first_position = 0;
  const int32_t* positions = nullptr;  // [B, T], may be null
  const int32_t* tokens;               // [B, T], each of a row that is here
  const void* w;                       // [V, D]
  const void* p;  // [>= first_position + T, D], may be null
  void* y;        // [B, T, D]
  int64_t first_token = 0;
  bool partial = false;  // tokens may be of other rows
};
struct EmbeddingBackwardWeightArgs {
  int64_t N, D, V;
  const int32_t* tokens;  // [N]
  const void* dy;         // [N, D]
  void* dw;               // [V, D] P; rows of absent tokens are zeroed on `=`
  bool accumulate = false;
  bool narrow = false;  // dw is T, not P
  // Rows and tokens as in EmbeddingForwardArgs; tokens of other rows add
  // nothing.
  int64_t first_token = 0;
  bool partial = false;
};
// Of rows with `positions` this is EmbeddingBackwardWeight, positions being
// the tokens.
struct EmbeddingBackwardPositionArgs {
  int64_t B, T, D, Tmax;
  int64_t first_position = 0;
  const void* dy;  // [B, T, D]
  void* dp;        // [Tmax, D] P; rows no token stands at are zeroed on `=`
  bool accumulate = false;
  bool narrow = false;  // dp is T, not P
};

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

// Of logits that are cut by columns over ranks, rows of vocabulary
// [first_token, first_token + V), three steps; the sums and maxima of all ranks
// come together between them.
// 1: by row the largest logit, and the smallest number where V is 0.
struct VocabMaxArgs {
  int64_t N, V, ld;
  const void* logits;  // [N, V]
  double* max;         // [N]
};
// 2: by row sum exp(logit - max), and the logit of the target, 0 where it is
// another rank's or not counted.
struct VocabSumsArgs {
  int64_t N, V, ld;
  const void* logits;
  int64_t first_token;
  const int32_t* targets;  // [N], of the whole vocabulary, or ignore_index
  int32_t ignore_index;
  const double* max;  // [N], of all columns
  double* sums;       // [N] exponentials, then [N] logits of targets
};
// 3: as cross_entropy, from the maxima and sums of all columns. With `counts`
// false loss_sum, count and z_sum stay as they are: of the ranks one adds.
struct VocabCrossEntropyArgs {
  int64_t N, V, ld;
  void* logits;  // becomes dlogits when want_grad
  int64_t first_token;
  const int32_t* targets;
  int32_t ignore_index;
  bool want_grad, counts;
  const double* max;   // [N]
  const double* sums;  // [2, N]
  double* row_loss;    // [N], scratch
  double* loss_sum;    // [1], +=
  int64_t* count;      // [1], +=
  double z_weight = 0;
  double* row_z = nullptr;  // [N], scratch
  double* z_sum = nullptr;  // [1], +=
};

// Adds the cross-entropy of some rows, in row order, to *loss_sum, and their
// number to *count; then, if asked, turns the logits into their gradient,
// softmax - onehot(target), without 1/N. A row whose target is ignore_index
// adds nothing and gets a gradient of zeros.
struct CrossEntropyArgs {
  int64_t N, V;
  int64_t ld;              // elements between rows of logits, >= V
  void* logits;            // [N, V], becomes dlogits when want_grad
  const int32_t* targets;  // [N], each in [0, V) or ignore_index
  int32_t ignore_index;
  bool want_grad;
  double* row_loss;  // [N], device memory: the loss of each row, 0 if ignored
  double* loss_sum;  // [1], device memory, +=
  int64_t* count;    // [1], device memory, +=
  // z-loss: to the gradient of each row that counts is added that of
  // z = z_weight * (log sum exp of the logits)^2, and z to *z_sum. Null when
  // z_weight is 0.
  double z_weight = 0;
  double* row_z = nullptr;  // [N], device memory: z of each row, 0 if ignored
  double* z_sum = nullptr;  // [1], device memory, +=
};

}  // namespace delink
