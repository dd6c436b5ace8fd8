// Arguments of the optimizer's kernels: plain structs that CUDA files include
// too. kernels.h says what holds for all calls.
#pragma once

#include <cstdint>

#include "framework/base/rng.h"
#include "framework/module/state_storage.h"
#include "framework/tensor/master.h"

namespace delink {

// A gradient g has the table's type or, with an f32 table and `bf16_g`, is bf16
// and widened as it is read.

// Device memory at a fixed address. The host writes lr and the limits before
// the step; FinishNorm writes the rest; Update reads it.
//
// An update sees g' = g * clip_factor; with a clip_value, each element is then
// clipped to [-clip_value, clip_value]. This is the order of clip_grad_norm_
// and then clip_grad_value_ in torch. Its learning rate is lr * lr_scale. If
// `skip` is set, nothing is written.
struct UpdateControl {
  double lr = 0;
  double clip = 0;         // largest norm; 0: no clipping
  double clip_value = 0;   // largest element after that; 0: no clipping
  double skip_above = 0;   // a larger norm skips the step; 0: none does
  double clip_factor = 0;  // multiplies every gradient; includes 1/tokens
  double norm = 0;         // of the gradient of the mean loss
  double loss_sum = 0;     // over all ranks
  double tokens = 0;       // counted targets, over all ranks
  double lost = 0;         // LossRecord::lost, over all ranks
  int32_t skip = 0;  // not finite, too large or some are lost: nothing may be
                     // changed
};

// The position in its parameter of element i of an update: first + i. If the
// elements are rows of `columns` values of a wider matrix, whose rows are
// `pitch` apart, `first` is where the row of element 0 begins, and element 0 is
// at in_row in it. All fields are multiples of 8.
struct ElementNumbers {
  int64_t first = 0;
  int64_t columns = 0, pitch = 0, in_row = 0;  // columns 0: not so

  constexpr int64_t operator()(int64_t i) const {
    if (columns == 0) return first + i;
    const int64_t at = in_row + i, row = at / columns;
    return first + row * pitch + (at - row * columns);
  }
};

// One AdamW step on n elements, in the order of torch.optim.AdamW:
//   p *= 1 - lr * decay
//   m = beta1 m + (1 - beta1) g',  v = beta2 v + (1 - beta2) g' g'
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// and, with p whole and w given, w = p rounded to bf16. The step uses m and v
// before they are rounded for storage.
//
// Element i is number k = numbers(i) of its parameter. Stochastic rounding uses
// half-word k % 8, the lower half of a word first, of Philox(key, k / 8, s):
// s = 0 for w, 1 for m and 2 for v. Masters other than kWhole and moments other
// than kExact are in f32 tables only.
struct AdamWArgs {
  void* p = nullptr;        // [n], kWhole only
  void* w = nullptr;        // [n] bf16; may be null where p is whole
  const void* g = nullptr;  // [n]
  bool bf16_g = false;
  void* m = nullptr;  // [n]
  void* v = nullptr;  // [n]
  int64_t n = 0;
  double lr_scale = 1;
  double beta1 = 0, beta2 = 0, eps = 0, decay = 0;
  int64_t update = 1;  // t
  const UpdateControl* control = nullptr;

  MasterForm master = MasterForm::kWhole;
  uint16_t* low = nullptr;  // [n], kSplit only
  StateStorage moments = StateStorage::kExact;
  // kBlock8: the blocks' scales, beginning with that of element 0, which is
  // number `in_block` of its block.
  float* m_scales = nullptr;
  float* v_scales = nullptr;
  int64_t in_block = 0;
  RngKey key;
  ElementNumbers numbers;
};

// The parameters of an update, n elements, in one of the forms of MasterForm: p
// and, if weights are bf16, the weights w, into which p is rounded; or w and
// the bits that it lacks; or w alone. Random numbers are as AdamW's for w.
// Masters other than kWhole are in f32 tables only.
struct UpdatedParams {
  void* p = nullptr;        // [n], kWhole only
  void* w = nullptr;        // [n] bf16, may be null where p is whole
  const void* g = nullptr;  // [n]
  bool bf16_g = false;
  int64_t n = 0;
  double lr_scale = 1;
  double decay = 0;
  const UpdateControl* control = nullptr;

  MasterForm master = MasterForm::kWhole;
  uint16_t* low = nullptr;  // [n], kSplit only
  RngKey key;               // kNone only
  ElementNumbers numbers;
};

// One step of stochastic gradient descent, as torch.optim.SGD: decay is part of
// the gradient, g' += decay p, and
//   m = momentum m + g'
//   p -= lr * (nesterov ? g' + momentum m : m)
// Without m: p -= lr g'.
struct SgdArgs {
  UpdatedParams params;
  void* m = nullptr;  // [n], may be null
  double momentum = 0;
  bool nesterov = false;
};

// One step of Lion (Chen et al., "Symbolic discovery of optimization
// algorithms", 2023): p *= 1 - lr * decay,
//   p -= lr * sign(beta1 m + (1 - beta1) g'),  m = beta2 m + (1 - beta2) g'
struct LionArgs {
  UpdatedParams params;
  void* m = nullptr;  // [n]
  double beta1 = 0, beta2 = 0;
};

// sums[i] = sum of squares of x[i * block, (i + 1) * block), the last block cut
// at n, in double. In the f32 table x may be null: then the elements are those
// of w, or of w and low as a split master. With `clip` they are gradients, and
// the sum is of squares of g'.
struct SumSquaresArgs {
  const void* x = nullptr;        // [n]
  const uint16_t* w = nullptr;    // [n] bf16
  const uint16_t* low = nullptr;  // [n], may be null
  int64_t n = 0;
  int64_t block = 0;
  double* sums = nullptr;  // [ceil(n / block)]
  const UpdateControl* clip = nullptr;
};

// slab_optimizer.h says what FinishNorm does.
struct FinishNormArgs {
  const double* sums = nullptr;  // [n + 2]
  int64_t n = 0;
  UpdateControl* control = nullptr;
};

// The biases of n of a router's E experts, from number `first` on:
//   bias += rate * sign(all choices / E - choices of the expert)
// where a layer that has the router has E choices by expert, then their sum, at
// sums + layers[i]. With `loads` a bias becomes choices of the expert / (all
// choices / E) instead. Nothing is written if control->skip is set.
struct BalanceBiasArgs {
  int64_t E = 0, first = 0, n = 0;
  double rate = 0;
  bool loads = false;
  const double* sums = nullptr;
  const int64_t* layers = nullptr;  // [count]
  int64_t count = 0;
  const UpdateControl* control = nullptr;
  void* bias = nullptr;  // [n]

  // Of the bias of number i of the n, which is `old`.
  template <typename T>
  constexpr T After(int64_t i, T old) const {
    double own = 0, all = 0;
    for (int64_t j = 0; j < count; ++j) {
      own += sums[layers[j] + first + i];
      all += sums[layers[j] + E];
    }
    own *= static_cast<double>(E);
    if (loads) return all > 0 ? static_cast<T>(own / all) : old;
    return old + static_cast<T>(own < all ? rate : own > all ? -rate : 0);
  }
};

// tail = {*loss_sum, *tokens, *lost, votes}, as doubles.
struct SumsTailArgs {
  const double* loss_sum = nullptr;
  const int64_t* tokens = nullptr;
  const double* lost = nullptr;
  double votes = 0;
  double* tail = nullptr;  // [4]
};

}  // namespace delink
