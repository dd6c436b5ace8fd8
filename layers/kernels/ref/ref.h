// The specification: every kernel as plain loops, one thread, arithmetic and
// sums in double, rounded once when stored. Tests hold the fast kernels against
// it; its table on double also serves gradient checks of whole models.
#pragma once

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/kernels.h"

namespace delink::ref {

// T is float, double or BFloat16; Wide<T> is the type of statistics and of
// gradients of parameters.
template <typename T>
const Kernels& Table();

double Gelu(double x, GeluForm form);
double GeluDerivative(double x, GeluForm form);

template <typename T>
void Matmul(Stream&, const MatmulArgs&);
template <typename T>
void MatmulGelu(Stream&, const MatmulGeluArgs&);
template <typename T>
void MatmulGeluBackward(Stream&, const MatmulGeluBackwardArgs&);
template <typename T>
void MatmulBiasGrad(Stream&, const MatmulBiasGradArgs&);
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
template <typename T>
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
int64_t AttentionForwardScratch(const AttentionForwardArgs&, int threads);
int64_t AttentionBackwardScratch(const AttentionBackwardArgs&, int threads);

template <typename T>
void CrossEntropy(Stream&, const CrossEntropyArgs&);

}  // namespace delink::ref
