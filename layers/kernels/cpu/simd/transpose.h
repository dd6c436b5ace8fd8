// Transposes a square of 32-bit lanes in registers.
#pragma once

#include <utility>

namespace delink::cpu::DELINK_SIMD {

// Cuts a and b into runs of kHalf lanes, and swaps run 1 of a with run 0 of b,
// run 3 of a with run 2 of b, and so on.
template <int kHalf, typename V, int... kLane>
static inline __attribute__((always_inline)) void SwapRuns(
    V* a, V* b, std::integer_sequence<int, kLane...>) {
  constexpr int kLanes = sizeof...(kLane);
  const V first = *a, second = *b;
  *a = __builtin_shufflevector(
      first, second,
      ((kLane & kHalf) != 0 ? kLane - kHalf + kLanes : kLane)...);
  *b = __builtin_shufflevector(
      first, second,
      ((kLane & kHalf) != 0 ? kLane + kLanes : kLane + kHalf)...);
}

// rows[i][j] = rows[j][i]; a V has as many lanes as there are rows. Swaps
// squares of kHalf, then those within them.
template <int kHalf, typename V>
static inline __attribute__((always_inline)) void TransposeFrom(V* rows) {
  constexpr int kLanes = static_cast<int>(sizeof(V) / 4);
  if constexpr (kHalf > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & kHalf) != 0) continue;
      SwapRuns<kHalf>(&rows[i], &rows[i + kHalf],
                      std::make_integer_sequence<int, kLanes>());
    }
    TransposeFrom<kHalf / 2>(rows);
  }
}

template <typename V>
static inline __attribute__((always_inline)) void Transpose(V* rows) {
  TransposeFrom<static_cast<int>(sizeof(V) / 8)>(rows);
}

}  // namespace delink::cpu::DELINK_SIMD
