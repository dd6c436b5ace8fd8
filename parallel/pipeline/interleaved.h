// Interleaved 1F1B (Megatron, arXiv 2104.04473): a stage has several chunks,
// far from each other in the model, so that a micro-batch comes round to it
// again soon and less time is idle, for more exchanges. Micro-batches go in
// groups of as many as there are stages: a group through one chunk, then
// through the stage's next.
//
//   2 stages of 2 chunks, 4 micro-batches; units of stage 0 (chunks 0 and 2),
//   a capital letter backward, ' the later chunk:
//     a b a' b' c A' d B' c' A d' B C' D' C D
//
// Of P stages with v chunks of equal work and M micro-batches
// (P - 1) / (v M + P - 1) of the time is idle.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"

namespace delink {

// A StageSchedule. Every stage has as many chunks, and micro_batches is a
// multiple of stages.
std::vector<Unit> Interleaved(const ProgramShape& shape, int32_t stage);

}  // namespace delink
