// Sums over the rows of a matrix, for the gradients of norms and biases. What
// is summed for one column does not depend on how threads share the columns.
#pragma once

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

// dw (=|+=) sum over n of dy * (x - mean) * rstd, without mean dy * x * rstd;
// db (=|+=) sum over n of dy. Either may be null.
struct ColumnSums {
  int64_t N, D;
  const float* dy;              // [N, D]
  const float* x = nullptr;     // [N, D], with dw
  const float* mean = nullptr;  // [N], may be null
  const float* rstd = nullptr;  // [N], with dw
  float* dw = nullptr;          // [D]
  float* db = nullptr;          // [D]
  bool accumulate;
};

void SumColumns(const ColumnSums& s);

}  // namespace delink::cpu::DELINK_SIMD
