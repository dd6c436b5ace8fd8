// The optimizer's kernels of the CUDA device, for f32: what its table lists.
#pragma once

#include "framework/optim/arguments.h"
#include "framework/optim/matrix_arguments.h"

namespace delink {

class Stream;

namespace cuda {

void AdamW(Stream& stream, const AdamWArgs& args);
void SumSquares(Stream& stream, const SumSquaresArgs& args);
void FinishNorm(Stream& stream, const FinishNormArgs& args);
void SumsTail(Stream& stream, const SumsTailArgs& args);
void Sgd(Stream& stream, const SgdArgs& args);
void Lion(Stream& stream, const LionArgs& args);
void MuonMomentum(Stream& stream, const MuonMomentumArgs& args);
void MuonNormalize(Stream& stream, const MuonNormalizeArgs& args);
void ScaleAdd(Stream& stream, const ScaleAddArgs& args);
void MuonStep(Stream& stream, const MuonStepArgs& args);
void ColumnSquares(Stream& stream, const ColumnSquaresArgs& args);
void AdafactorFactors(Stream& stream, const AdafactorArgs& args);
void AdafactorSums(Stream& stream, const AdafactorArgs& args);
void AdafactorStep(Stream& stream, const AdafactorArgs& args);

}  // namespace cuda
}  // namespace delink
