// Private to framework/optim/cpu: what its table lists.
#pragma once

#include "framework/optim/kernels.h"

namespace delink::cpu {

template <typename T>
void AdamW(Stream& stream, const AdamWArgs& args);
template <typename T>
void SumSquares(Stream& stream, const SumSquaresArgs& args);
void FinishNorm(Stream& stream, const FinishNormArgs& args);
void SumsTail(Stream& stream, const SumsTailArgs& args);

}  // namespace delink::cpu
