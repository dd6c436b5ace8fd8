// Loops over the vectors of one row; the last one may be partial. An operand
// past the end of the row reads as 0.
#pragma once

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

// Calls visit(load, store) for each vector of a row of D elements:
// load(p) reads lanes d.. of p, store(p, v) writes them.
template <typename Visit>
static DELINK_INLINE void ForRow(int64_t D, const Visit& visit) {
  int64_t d = 0;
  for (; d + kWidth <= D; d += kWidth) {
    visit([d](const auto* p) DELINK_LAMBDA { return Load(p + d); },
          [d](auto* p, Vec v) DELINK_LAMBDA { Store(p + d, v); });
  }
  if (d < D) {
    const int64_t rest = D - d;
    visit([d, rest](const auto* p)
              DELINK_LAMBDA { return LoadPartial(p + d, rest); },
          [d, rest](auto* p, Vec v)
              DELINK_LAMBDA { StorePartial(p + d, v, rest); });
  }
}

}  // namespace delink::cpu::DELINK_SIMD
