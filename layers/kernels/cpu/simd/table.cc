#include "framework/tensor/bfloat16.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {

namespace {

template <typename T>
using Made = Composed<Matmul<T>, BiasGrad<T>, GeluForward<T>, GeluBackward<T>>;

template <typename T>
constexpr Kernels kOf = {
    .matmul = Matmul<T>,
    .matmul_gelu = Made<T>::MatmulGelu,
    .matmul_gelu_backward = Made<T>::MatmulGeluBackward,
    .matmul_bias_grad = Made<T>::MatmulBiasGrad,
    .bias_grad = BiasGrad<T>,
    .layer_norm_forward = LayerNormForward<T>,
    .layer_norm_backward_input = LayerNormBackwardInput<T>,
    .layer_norm_backward_weight = LayerNormBackwardWeight<T>,
    .rms_norm_forward = RmsNormForward<T>,
    .rms_norm_backward_input = RmsNormBackwardInput<T>,
    .rms_norm_backward_weight = RmsNormBackwardWeight<T>,
    .qk_norm_forward = QkNormForward<T>,
    .qk_norm_backward_input = QkNormBackwardInput<T>,
    .qk_norm_backward_weight = QkNormBackwardWeight<T>,
    .gelu_forward = GeluForward<T>,
    .gelu_backward = GeluBackward<T>,
    .swiglu_forward = SwiGluForward<T>,
    .swiglu_backward = SwiGluBackward<T>,
    .rotary = Rotary<T>,
    .add = Add<T>,
    .accumulate = Accumulate<T>,
    .round_gradient = RoundGradient,
    .dropout = Dropout<T>,
    .embedding_forward = EmbeddingForward<T>,
    .embedding_backward_weight = EmbeddingBackwardWeight<T>,
    .embedding_backward_position = EmbeddingBackwardPosition<T>,
    .attention_forward = AttentionForward<T>,
    .attention_backward = AttentionBackward<T>,
    .attention_forward_scratch_bytes = AttentionForwardScratch<T>,
    .attention_backward_scratch_bytes = AttentionBackwardScratch<T>,
    .cross_entropy = CrossEntropy<T>,
};

}  // namespace

const Kernels kF32 = kOf<float>;
const Kernels kBf16 = kOf<BFloat16>;

}  // namespace delink::cpu::DELINK_SIMD
