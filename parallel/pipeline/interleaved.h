// Interleaved 1F1B (Megatron, arXiv 2104.04473): a stage has several chunks,
// spread over the model. So a micro-batch soon returns to the stage and less
// time is idle, at the price of more exchanges. Micro-batches form groups, with
// as many as there are stages: a group passes one chunk, then the stage's next.
//
//   2 stages of 2 chunks, 4 micro-batches; units of stage 0 (chunks 0 and 2),
//   a capital letter backward, ' the later chunk:
//     a b a' b' c A' d B' c' A d' B C' D' C D
//
// With P stages of v chunks of equal work and M micro-batches, the idle share
// of the time is (P - 1) / (v M + P - 1).
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"

namespace delink {

// A StageSchedule. Every stage has as many chunks, and micro_batches is a
// multiple of stages.
std::vector<Unit> Interleaved(const ProgramShape& shape, int32_t stage);

}  // namespace delink
