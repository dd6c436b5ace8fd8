// The specification: every kernel as plain loops, one thread, arithmetic and
// sums in double, rounded once when stored. Tests compare the fast kernels with
// it; its table for double also serves gradient checks of whole models.
#pragma once

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/backend.h"

namespace delink::ref {

// T is float, double or BFloat16; Wide<T> is the type of statistics and of
// gradients of parameters.
template <typename T>
const Kernels& Table();

double Gelu(double x, GeluForm form);
double GeluDerivative(double x, GeluForm form);

DELINK_KERNELS(DELINK_DECLARE_KERNEL)
DELINK_SCRATCH_BYTES(DELINK_DECLARE_SCRATCH)

}  // namespace delink::ref
