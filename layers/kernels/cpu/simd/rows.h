// Loops over the vectors of one row; the last one may be partial. An operand
// past the end of the row reads as 0.
#pragma once

#include <type_traits>

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

// Keeps the first of two neighbouring vectors until the second is stored too,
// since two vectors are rounded to bf16 together.
struct Kept {
  Vec values[4];
  int count = 0, stored = 0;
};

// Calls visit(load, store) for each vector of a row of D elements:
// load(p) reads lanes d.. of p, store(p, v) writes them.
template <typename Visit>
static DELINK_INLINE void ForRow(int64_t D, const Visit& visit) {
  int64_t d = 0;
#if defined(__AVX512BF16__)
  for (; d + 2 * kWidth <= D; d += 2 * kWidth) {
    Kept kept;
    visit([d](const auto* p) DELINK_LAMBDA { return Load(p + d); },
          [d, &kept](auto* p, Vec v) DELINK_LAMBDA {
            if constexpr (kIsF32<std::remove_reference_t<decltype(*p)>>) {
              Store(p + d, v);
            } else {
              kept.values[kept.count++] = v;
            }
          });
    visit([d](const auto* p) DELINK_LAMBDA { return Load(p + d + kWidth); },
          [d, &kept](auto* p, Vec v) DELINK_LAMBDA {
            if constexpr (kIsF32<std::remove_reference_t<decltype(*p)>>) {
              Store(p + d + kWidth, v);
            } else {
              StorePair(p + d, kept.values[kept.stored++], v);
            }
          });
  }
#endif
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
