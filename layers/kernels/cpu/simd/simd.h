// The vectorised kernels. The sources of this folder are compiled once for each
// instruction set, with DELINK_SIMD naming the namespace (baseline, avx2,
// avx512, avx512bf16); which one runs is decided at run time.
//
// Because the same inline function of a header would exist once per
// instruction set, and the linker keeps any one of them, these sources use
// nothing inline from outside this folder: no standard containers or
// algorithms, no checks, no functions of rng.h or bfloat16.h. What they need of
// that kind is in helpers.h, compiled once.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink::cpu::DELINK_SIMD {

extern const Kernels kF32;
extern const Kernels kBf16;

// T is float or BFloat16.
template <typename T>
void Matmul(Stream&, const MatmulArgs&);
template <typename T>
void BiasGrad(Stream&, const BiasGradArgs&);
template <typename T>
void LayerNormForward(Stream&, const LayerNormForwardArgs&);
template <typename T>
void LayerNormBackwardInput(Stream&, const LayerNormBackwardInputArgs&);
template <typename T>
void LayerNormBackwardWeight(Stream&, const LayerNormBackwardWeightArgs&);
template <typename T>
void RmsNormForward(Stream&, const RmsNormForwardArgs&);
template <typename T>
void RmsNormBackwardInput(Stream&, const RmsNormBackwardInputArgs&);
template <typename T>
void RmsNormBackwardWeight(Stream&, const RmsNormBackwardWeightArgs&);
template <typename T>
void QkNormForward(Stream&, const QkNormForwardArgs&);
template <typename T>
void QkNormBackwardInput(Stream&, const QkNormBackwardInputArgs&);
template <typename T>
void QkNormBackwardWeight(Stream&, const QkNormBackwardWeightArgs&);
template <typename T>
void GeluForward(Stream&, const GeluForwardArgs&);
template <typename T>
void GeluBackward(Stream&, const GeluBackwardArgs&);
template <typename T>
void SwiGluForward(Stream&, const SwiGluForwardArgs&);
template <typename T>
void SwiGluBackward(Stream&, const SwiGluBackwardArgs&);
template <typename T>
void Rotary(Stream&, const RotaryArgs&);
template <typename T>
void Add(Stream&, const AddArgs&);
template <typename T>
void Accumulate(Stream&, const AccumulateArgs&);
void RoundGradient(Stream&, const RoundGradientArgs&);
template <typename T>
void Dropout(Stream&, const DropoutArgs&);
template <typename T>
void EmbeddingForward(Stream&, const EmbeddingForwardArgs&);
template <typename T>
void EmbeddingBackwardWeight(Stream&, const EmbeddingBackwardWeightArgs&);
template <typename T>
void EmbeddingBackwardPosition(Stream&, const EmbeddingBackwardPositionArgs&);
template <typename T>
void AttentionForward(Stream&, const AttentionForwardArgs&);
template <typename T>
void AttentionBackward(Stream&, const AttentionBackwardArgs&);
template <typename T>
void CrossEntropy(Stream&, const CrossEntropyArgs&);

}  // namespace delink::cpu::DELINK_SIMD
