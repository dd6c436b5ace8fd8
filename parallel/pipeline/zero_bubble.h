// Zero-bubble ZB-H1 (arXiv 2401.10241): 1F1B whose backwards are in two halves.
// The next stage to go backward waits for the first one alone; the second fills
// what would be idle at the end. Stage p is p second halves behind, so that all
// stages hold as many micro-batches as the first, and the first goes backward
// whole.
//
//   3 stages, 5 micro-batches, a capital letter backward or its first half,
//   ' the second half; a whole backward takes twice as long:
//     stage 0   a b c . . A A d B B e C C D D E E
//     stage 1   . a b . A c B ' d C ' e D ' E ' '
//     stage 2   . . a A b B c C ' d D ' e E ' ' '
//
// Of P stages with M micro-batches, where a forward and the halves take as long
// as each other, (P - 1) / (3 M + P - 1) of the time is idle where 1F1B leaves
// (P - 1) / (M + P - 1): less, not none, because what follows, the norm of all
// gradients, waits for all stages.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"

namespace delink {

// A StageSchedule. The shape has one chunk a stage.
std::vector<Unit> ZeroBubble(const ProgramShape& shape, int32_t stage);

}  // namespace delink
