#include "layers/kernels/meta/meta.h"

namespace delink::meta {

Kernels Table(const Kernels& imitated) {
  return {
      .matmul = Nothing,
      .matmul_gelu = Nothing,
      .matmul_gelu_backward = Nothing,
      .matmul_bias_grad = Nothing,
      .bias_grad = Nothing,
      .layer_norm_forward = Nothing,
      .layer_norm_backward_input = Nothing,
      .layer_norm_backward_weight = Nothing,
      .rms_norm_forward = Nothing,
      .rms_norm_backward_input = Nothing,
      .rms_norm_backward_weight = Nothing,
      .qk_norm_forward = Nothing,
      .qk_norm_backward_input = Nothing,
      .qk_norm_backward_weight = Nothing,
      .gelu_forward = Nothing,
      .gelu_backward = Nothing,
      .swiglu_forward = Nothing,
      .swiglu_backward = Nothing,
      .rotary = Nothing,
      .add = Nothing,
      .accumulate = Nothing,
      .round_gradient = Nothing,
      .dropout = Nothing,
      .embedding_forward = Nothing,
      .embedding_backward_weight = Nothing,
      .embedding_backward_position = Nothing,
      .attention_forward = Nothing,
      .attention_backward = Nothing,
      .attention_forward_scratch_bytes =
          imitated.attention_forward_scratch_bytes,
      .attention_backward_scratch_bytes =
          imitated.attention_backward_scratch_bytes,
      .cross_entropy = Nothing,
  };
}

}  // namespace delink::meta
