// The arithmetic of optimizers, as one table of functions for each kind of
// device and element type: that of gradients, state and the parameters
// themselves. Under bf16 these are f32 (framework/module/param_store.h), but
// for gradients, which may be bf16, and an update also writes the rounded
// weights.
//
// A call enqueues work on the stream and returns; on the CPU it is done on
// return. Pointers are device memory and do not overlap. Every result of an
// elementwise update, or of a block's sum, is a function of its element (or
// block) alone, so that cutting a range anywhere changes no bit. Sums over
// whole matrices have the order that the arguments state.
#pragma once

#include <cstdint>

#include "framework/device/backend.h"
#include "framework/optim/arguments.h"
#include "framework/optim/matrix_arguments.h"
#include "framework/tensor/dtype.h"

namespace delink {

struct OptimKernels {
  void (*adamw)(Stream&, const AdamWArgs&);
  void (*sum_squares)(Stream&, const SumSquaresArgs&);
  void (*finish_norm)(Stream&, const FinishNormArgs&);
  void (*sums_tail)(Stream&, const SumsTailArgs&);
  void (*sgd)(Stream&, const SgdArgs&);
  void (*lion)(Stream&, const LionArgs&);
  void (*muon_momentum)(Stream&, const MuonMomentumArgs&);
  void (*muon_normalize)(Stream&, const MuonNormalizeArgs&);
  void (*scale_add)(Stream&, const ScaleAddArgs&);
  void (*muon_step)(Stream&, const MuonStepArgs&);
  void (*column_squares)(Stream&, const ColumnSquaresArgs&);
  void (*adafactor_factors)(Stream&, const AdafactorArgs&);
  void (*adafactor_sums)(Stream&, const AdafactorArgs&);
  void (*adafactor_step)(Stream&, const AdafactorArgs&);
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
