// The arithmetic of optimizers, as one table of functions for each kind of
// device and element type of gradients, state and parameters. If weights are
// bf16, this type is f32 (framework/module/param_store.h), except that
// gradients may be bf16, and an update also writes the rounded weights.
//
// A call enqueues work on the stream and returns; on the CPU it is done on
// return. Pointers are device memory and do not overlap. Every result of an
// elementwise update, or of a block's sum, depends on its element (or block)
// alone, so that cutting a range anywhere changes no bit. Sums over whole
// matrices have the order that the arguments state.
//
// All kernels are in one list, DELINK_OPTIM_KERNELS, which makes every table
// and every backend's declarations. A new kernel needs a line there, its
// arguments, and a function of its name in cpu/ and cuda/; if one is missing,
// no program links.
#pragma once

#include "framework/optim/arguments.h"
#include "framework/optim/matrix_arguments.h"

namespace delink {

class Stream;

// KERNEL(entry, Function, Args): the table's `entry` is Function<T> of cpu/ and
// Function of cuda/, void(Stream&, const Args&).
#define DELINK_OPTIM_KERNELS(KERNEL)                               \
  /* The norm of all gradients, and the step's control from it. */ \
  KERNEL(sum_squares, SumSquares, SumSquaresArgs)                  \
  KERNEL(finish_norm, FinishNorm, FinishNormArgs)                  \
  KERNEL(sums_tail, SumsTail, SumsTailArgs)                        \
  /* Updates of one pass. */                                       \
  KERNEL(adamw, AdamW, AdamWArgs)                                  \
  KERNEL(sgd, Sgd, SgdArgs)                                        \
  KERNEL(lion, Lion, LionArgs)                                     \
  KERNEL(balance_bias, BalanceBias, BalanceBiasArgs)               \
  /* Muon; matrices are multiplied between these kernels. */       \
  KERNEL(muon_momentum, MuonMomentum, MuonMomentumArgs)            \
  KERNEL(muon_normalize, MuonNormalize, MuonNormalizeArgs)         \
  KERNEL(scale_add, ScaleAdd, ScaleAddArgs)                        \
  KERNEL(muon_step, MuonStep, MuonStepArgs)                        \
  /* Adafactor. */                                                 \
  KERNEL(column_squares, ColumnSquares, ColumnSquaresArgs)         \
  KERNEL(adafactor_factors, AdafactorFactors, AdafactorArgs)       \
  KERNEL(adafactor_sums, AdafactorSums, AdafactorArgs)             \
  KERNEL(adafactor_totals, AdafactorTotals, AdafactorArgs)         \
  KERNEL(adafactor_step, AdafactorStep, AdafactorArgs)

struct OptimKernels {
#define DELINK_ENTRY(entry, Function, Args) void (*entry)(Stream&, const Args&);
  DELINK_OPTIM_KERNELS(DELINK_ENTRY)
#undef DELINK_ENTRY
};

}  // namespace delink
