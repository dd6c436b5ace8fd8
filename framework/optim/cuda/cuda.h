// The optimizer's kernels of the CUDA device, for f32: what its table lists.
#pragma once

#include "framework/optim/arguments.h"

namespace delink {

class Stream;

namespace cuda {

void AdamW(Stream& stream, const AdamWArgs& args);
void SumSquares(Stream& stream, const SumSquaresArgs& args);
void FinishNorm(Stream& stream, const FinishNormArgs& args);
void SumsTail(Stream& stream, const SumsTailArgs& args);

}  // namespace cuda
}  // namespace delink
