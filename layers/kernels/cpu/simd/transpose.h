// A square of 32-bit lanes in registers.
#pragma once

#include <cstdint>

namespace delink::cpu::DELINK_SIMD {

// rows[i][j] = rows[j][i], where a V has as many lanes as there are rows:
// squares of half the size change places, ever smaller.
template <typename V>
static inline __attribute__((always_inline)) void Transpose(V* rows) {
  using Lanes = decltype(V{} < V{});
  constexpr int kLanes = static_cast<int>(sizeof(V) / 4);
  Lanes lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
    const Lanes upper = (lane & half) != 0;
    const Lanes first = upper ? lane - half + kLanes : lane;
    const Lanes second = upper ? lane + kLanes : lane + half;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & half) != 0) continue;
      const V a = rows[i], b = rows[i + half];
      rows[i] = __builtin_shuffle(a, b, first);
      rows[i + half] = __builtin_shuffle(a, b, second);
    }
  }
}

}  // namespace delink::cpu::DELINK_SIMD
