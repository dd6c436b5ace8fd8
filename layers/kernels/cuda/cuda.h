// The kernels of the CUDA device. Device code is in NAME.cuh, and NAME.cu
// chooses the shapes of the launches. Matrix products are cuBLASLt's and
// attention is cuDNN's where there is one; both are behind the functions
// declared here.
#pragma once

#include <string>

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cuda/attention_scratch.h"
#include "layers/kernels/kernels.h"

namespace delink::cuda {

// T is float or BFloat16. Statistics and gradients of parameters are f32. Null
// in a build without CUDA (no_cuda/table.cc).
template <typename T>
const Kernels* Table();

// What matrix products lack on this machine, where it was looked for and how to
// mend that; empty when nothing is. To be asked before anything is computed,
// which ends the process where it is not there.
std::string MissingLibrary();
// Opens what attention in bf16 calls, which else its first call does. Empty, or
// why there is none and our own kernels, which are slower, do it.
std::string OpenAttention(Stream&);

template <typename T>
void Matmul(Stream&, const MatmulArgs&);
template <typename T>
void MatmulGelu(Stream&, const MatmulGeluArgs&);
template <typename T>
void MatmulGeluBackward(Stream&, const MatmulGeluBackwardArgs&);
template <typename T>
void MatmulBiasGrad(Stream&, const MatmulBiasGradArgs&);
// Our own, for what cuBLASLt does not take.
template <typename T>
void TiledMatmul(Stream&, const MatmulArgs&);
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

}  // namespace delink::cuda
