// The vectorised kernels. The sources of this folder are compiled once for each
// instruction set, with DELINK_SIMD naming the namespace (baseline, avx2,
// avx512); which one runs is decided at run time.
//
// Because the same inline function of a header would exist once per
// instruction set, and the linker keeps any one of them, these sources use
// nothing inline from outside this folder: no standard containers or
// algorithms, no checks, no rng.h functions. What they need of that kind is in
// helpers.h, compiled once.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu::DELINK_SIMD {

extern const Kernels kTable;

void Matmul(Stream&, const MatmulArgs&);
void BiasGrad(Stream&, const BiasGradArgs&);
void LayerNormForward(Stream&, const LayerNormForwardArgs&);
void LayerNormBackwardInput(Stream&, const LayerNormBackwardInputArgs&);
void LayerNormBackwardWeight(Stream&, const LayerNormBackwardWeightArgs&);
void RmsNormForward(Stream&, const RmsNormForwardArgs&);
void RmsNormBackwardInput(Stream&, const RmsNormBackwardInputArgs&);
void RmsNormBackwardWeight(Stream&, const RmsNormBackwardWeightArgs&);
void QkNormForward(Stream&, const QkNormForwardArgs&);
void QkNormBackwardInput(Stream&, const QkNormBackwardInputArgs&);
void QkNormBackwardWeight(Stream&, const QkNormBackwardWeightArgs&);
void GeluForward(Stream&, const GeluForwardArgs&);
void GeluBackward(Stream&, const GeluBackwardArgs&);
void SwiGluForward(Stream&, const SwiGluForwardArgs&);
void SwiGluBackward(Stream&, const SwiGluBackwardArgs&);
void Rotary(Stream&, const RotaryArgs&);
void Add(Stream&, const AddArgs&);
void Accumulate(Stream&, const AccumulateArgs&);
void Dropout(Stream&, const DropoutArgs&);
void EmbeddingForward(Stream&, const EmbeddingForwardArgs&);
void EmbeddingBackwardWeight(Stream&, const EmbeddingBackwardWeightArgs&);
void EmbeddingBackwardPosition(Stream&, const EmbeddingBackwardPositionArgs&);
void AttentionForward(Stream&, const AttentionForwardArgs&);
void AttentionBackward(Stream&, const AttentionBackwardArgs&);
void CrossEntropy(Stream&, const CrossEntropyArgs&);

}  // namespace delink::cpu::DELINK_SIMD
