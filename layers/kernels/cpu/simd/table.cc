#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {

const Kernels kTable = {
    .matmul = Matmul,
    .bias_grad = BiasGrad,
    .layer_norm_forward = LayerNormForward,
    .layer_norm_backward_input = LayerNormBackwardInput,
    .layer_norm_backward_weight = LayerNormBackwardWeight,
    .rms_norm_forward = RmsNormForward,
    .rms_norm_backward_input = RmsNormBackwardInput,
    .rms_norm_backward_weight = RmsNormBackwardWeight,
    .qk_norm_forward = QkNormForward,
    .qk_norm_backward_input = QkNormBackwardInput,
    .qk_norm_backward_weight = QkNormBackwardWeight,
    .gelu_forward = GeluForward,
    .gelu_backward = GeluBackward,
    .swiglu_forward = SwiGluForward,
    .swiglu_backward = SwiGluBackward,
    .rotary = Rotary,
    .add = Add,
    .accumulate = Accumulate,
    .dropout = Dropout,
    .embedding_forward = EmbeddingForward,
    .embedding_backward_weight = EmbeddingBackwardWeight,
    .embedding_backward_position = EmbeddingBackwardPosition,
    .attention_forward = AttentionForward,
    .attention_backward = AttentionBackward,
    .attention_forward_scratch_bytes = AttentionForwardScratch,
    .attention_backward_scratch_bytes = AttentionBackwardScratch,
    .cross_entropy = CrossEntropy,
};

}  // namespace delink::cpu::DELINK_SIMD
