// Private to framework/optim/cpu: what its table lists.
#pragma once

#include "framework/optim/kernels.h"

namespace delink::cpu {

template <typename T>
void AdamW(Stream& stream, const AdamWArgs& args);
template <typename T>
void SumSquares(Stream& stream, const SumSquaresArgs& args);
template <typename T>
void Sgd(Stream& stream, const SgdArgs& args);
template <typename T>
void Lion(Stream& stream, const LionArgs& args);
template <typename T>
void MuonMomentum(Stream& stream, const MuonMomentumArgs& args);
template <typename T>
void MuonNormalize(Stream& stream, const MuonNormalizeArgs& args);
template <typename T>
void ScaleAdd(Stream& stream, const ScaleAddArgs& args);
template <typename T>
void MuonStep(Stream& stream, const MuonStepArgs& args);
template <typename T>
void ColumnSquares(Stream& stream, const ColumnSquaresArgs& args);
template <typename T>
void AdafactorFactors(Stream& stream, const AdafactorArgs& args);
template <typename T>
void AdafactorSums(Stream& stream, const AdafactorArgs& args);
template <typename T>
void AdafactorStep(Stream& stream, const AdafactorArgs& args);
void FinishNorm(Stream& stream, const FinishNormArgs& args);
void SumsTail(Stream& stream, const SumsTailArgs& args);

}  // namespace delink::cpu
