// Zero-bubble ZB-H1 (arXiv 2401.10241): 1F1B with each backward in two halves.
// The stage before waits only for the first half; the second halves fill time
// that would be idle at the end. Stage p delays its second halves by p, so that
// all stages hold as many micro-batches as the first stage. The first stage
// runs whole backwards.
//
//   3 stages, 5 micro-batches, a capital letter backward or its first half,
//   ' the second half; a whole backward takes twice as long:
//     stage 0   a b c . . A A d B B e C C D D E E
//     stage 1   . a b . A c B ' d C ' e D ' E ' '
//     stage 2   . . a A b B c C ' d D ' e E ' ' '
//
// With P stages and M micro-batches, if a forward and each half take equal
// time, the idle share of the time is (P - 1) / (3 M + P - 1), where 1F1B has
// (P - 1) / (M + P - 1). It is not zero, because the norm of all gradients,
// which follows, waits for all stages.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"

namespace delink {

// A StageSchedule. The shape has one chunk a stage.
std::vector<Unit> ZeroBubble(const ProgramShape& shape, int32_t stage);

}  // namespace delink
