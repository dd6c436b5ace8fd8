// The arithmetic of optimizers, as one table of functions for each kind of
// device and element type: that of gradients, state and the parameters
// themselves. Under bf16 these are f32 (framework/module/param_store.h), and an
// update also writes the rounded weights.
//
// A call enqueues work on the stream and returns; on the CPU it is done on
// return. Pointers are device memory and do not overlap. Every result is a
// function of its element (or block) alone, so that cutting a range anywhere
// changes no bit.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"

namespace delink {

struct UpdateControl;

// One AdamW step on n elements, in the order of torch.optim.AdamW:
//   g' = g * clip_factor
//   p *= 1 - lr * decay
//   m = beta1 m + (1 - beta1) g',  v = beta2 v + (1 - beta2) g' g'
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// and, with w given, w = p rounded to bf16 (f32 tables only). Nothing is
// written when control->skip is set.
struct AdamWArgs {
  void* p = nullptr;        // [n]
  void* w = nullptr;        // [n] bf16, may be null
  const void* g = nullptr;  // [n]
  void* m = nullptr;        // [n]
  void* v = nullptr;        // [n]
  int64_t n = 0;
  double beta1 = 0, beta2 = 0, eps = 0, decay = 0;
  int64_t update = 1;  // t
  const UpdateControl* control = nullptr;
};

// sums[i] = sum of squares of x[i * block, (i + 1) * block), the last block cut
// at n, in double.
struct SumSquaresArgs {
  const void* x = nullptr;  // [n]
  int64_t n = 0;
  int64_t block = 0;
  double* sums = nullptr;  // [ceil(n / block)]
};

// slab_optimizer.h says what FinishNorm does.
struct FinishNormArgs {
  const double* sums = nullptr;  // [n + 2]
  int64_t n = 0;
  UpdateControl* control = nullptr;
};

// tail = {*loss_sum, *tokens, votes}, as doubles.
struct SumsTailArgs {
  const double* loss_sum = nullptr;
  const int64_t* tokens = nullptr;
  double votes = 0;
  double* tail = nullptr;  // [3]
};

struct OptimKernels {
  void (*adamw)(Stream&, const AdamWArgs&);
  void (*sum_squares)(Stream&, const SumSquaresArgs&);
  void (*finish_norm)(Stream&, const FinishNormArgs&);
  void (*sums_tail)(Stream&, const SumsTailArgs&);
};

// Null when this build has no kernels for the pair (f32 and f64 on the CPU; on
// meta they do nothing).
const OptimKernels* FindOptimKernels(DeviceKind device, DType dtype);

namespace cpu {
const OptimKernels* OptimTable(DType dtype);

// The same f32 step limited to one instruction set, for tests: 0 the baseline,
// 1 AVX2, 2 AVX-512. False when this machine does not have it.
bool AdamWF32With(int instructions, const AdamWArgs& args);
bool SumSquaresF32With(int instructions, const SumSquaresArgs& args);
}  // namespace cpu
namespace meta {
const OptimKernels* OptimTable(DType dtype);
}  // namespace meta
namespace cuda {
const OptimKernels* OptimTable(DType dtype);
}  // namespace cuda

}  // namespace delink
