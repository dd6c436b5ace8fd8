// One forward, one backward (PipeDream-Flush, arXiv 2006.09503; Megatron's
// 1F1B): a stage runs forwards until the last stage can run a backward, then
// alternates. So of P stages stage p holds only P - p micro-batches, not all.
//
//   3 stages, 5 micro-batches, a capital letter backward:
//     stage 0   a b c . . A d B e C . D . E
//     stage 1   . a b . A c B d C e D . E .
//     stage 2   . . a A b B c C d D e E . .
//
// With P stages of equal work and M micro-batches, the idle share of the time
// is (P - 1) / (M + P - 1).
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"

namespace delink {

// A StageSchedule. The shape has one chunk a stage.
std::vector<Unit> OneFOneB(const ProgramShape& shape, int32_t stage);

}  // namespace delink
