// Sums over the rows of a matrix, for the gradients of norms and biases. A
// column's sum does not depend on how threads share the columns.
#pragma once

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

// dw (=|+=) sum over n of dy * (x - mean) * rstd, or dy * x * rstd if no mean;
// db (=|+=) sum over n of dy. Either may be null.
template <typename T>
struct ColumnSums {
  int64_t N, D;
  const T* dy;                  // [N, D]
  const T* x = nullptr;         // [N, D], with dw
  const float* mean = nullptr;  // [N], may be null
  const float* rstd = nullptr;  // [N], with dw
  float* dw = nullptr;          // [D]
  float* db = nullptr;          // [D]
  bool accumulate;
};

// T is float or BFloat16.
template <typename T>
void SumColumns(const ColumnSums<T>& s);

}  // namespace delink::cpu::DELINK_SIMD
