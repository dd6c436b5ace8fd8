// Upper bounds of a recipe's numbers: far above any use, but low enough that
// their products fit in 64 bits.
#pragma once

#include <cstdint>

namespace delink::schema {

inline constexpr int64_t kMaxSteps = 1'000'000'000;
inline constexpr int64_t kMaxSequences = 1 << 24;
inline constexpr int64_t kMaxSeq = 1 << 24;
inline constexpr int64_t kMaxRanks = 1 << 20;
inline constexpr int64_t kMaxLayers = 1 << 24;
inline constexpr int64_t kMaxThreads = 4096;
inline constexpr double kMaxWeight = 1e9;  // of a source

}  // namespace delink::schema
