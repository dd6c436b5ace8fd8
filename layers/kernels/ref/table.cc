#include "layers/kernels/ref/ref.h"

namespace delink::ref {

template <typename T>
const Kernels& Table() {
  static constexpr Kernels kTable = {
      .matmul = Matmul<T>,
      .matmul_gelu = MatmulGelu<T>,
      .matmul_gelu_backward = MatmulGeluBackward<T>,
      .matmul_bias_grad = MatmulBiasGrad<T>,
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
      .round_gradient = RoundGradient<T>,
      .dropout = Dropout<T>,
      .embedding_forward = EmbeddingForward<T>,
      .embedding_backward_weight = EmbeddingBackwardWeight<T>,
      .embedding_backward_position = EmbeddingBackwardPosition<T>,
      .attention_forward = AttentionForward<T>,
      .attention_backward = AttentionBackward<T>,
      .attention_forward_scratch_bytes = AttentionForwardScratch,
      .attention_backward_scratch_bytes = AttentionBackwardScratch,
      .cross_entropy = CrossEntropy<T>,
  };
  return kTable;
}

template const Kernels& Table<float>();
template const Kernels& Table<double>();
template const Kernels& Table<BFloat16>();

}  // namespace delink::ref
