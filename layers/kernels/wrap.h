// A table of kernels around another's: what one wants done at every call.
#pragma once

#include "layers/kernels/kernels.h"

namespace delink {

template <typename Wrapper, auto kEntry>
struct Wrapped;

template <typename Wrapper, typename Args,
          void (*Kernels::*kEntry)(Stream&, const Args&)>
struct Wrapped<Wrapper, kEntry> {
  static void Call(Stream& stream, const Args& args) {
    Wrapper::template Call<kEntry>(stream, args);
  }
};

// Each entry calls Wrapper::Call<&Kernels::ENTRY>(stream, args); questions
// about scratch are answered as `inner` does.
template <typename Wrapper>
Kernels WrapKernels(const Kernels& inner) {
  using K = Kernels;
  return {
      .matmul = Wrapped<Wrapper, &K::matmul>::Call,
      .matmul_gelu = Wrapped<Wrapper, &K::matmul_gelu>::Call,
      .matmul_gelu_backward = Wrapped<Wrapper, &K::matmul_gelu_backward>::Call,
      .matmul_bias_grad = Wrapped<Wrapper, &K::matmul_bias_grad>::Call,
      .bias_grad = Wrapped<Wrapper, &K::bias_grad>::Call,
      .layer_norm_forward = Wrapped<Wrapper, &K::layer_norm_forward>::Call,
      .layer_norm_backward_input =
          Wrapped<Wrapper, &K::layer_norm_backward_input>::Call,
      .layer_norm_backward_weight =
          Wrapped<Wrapper, &K::layer_norm_backward_weight>::Call,
      .rms_norm_forward = Wrapped<Wrapper, &K::rms_norm_forward>::Call,
      .rms_norm_backward_input =
          Wrapped<Wrapper, &K::rms_norm_backward_input>::Call,
      .rms_norm_backward_weight =
          Wrapped<Wrapper, &K::rms_norm_backward_weight>::Call,
      .qk_norm_forward = Wrapped<Wrapper, &K::qk_norm_forward>::Call,
      .qk_norm_backward_input =
          Wrapped<Wrapper, &K::qk_norm_backward_input>::Call,
      .qk_norm_backward_weight =
          Wrapped<Wrapper, &K::qk_norm_backward_weight>::Call,
      .gelu_forward = Wrapped<Wrapper, &K::gelu_forward>::Call,
      .gelu_backward = Wrapped<Wrapper, &K::gelu_backward>::Call,
      .swiglu_forward = Wrapped<Wrapper, &K::swiglu_forward>::Call,
      .swiglu_backward = Wrapped<Wrapper, &K::swiglu_backward>::Call,
      .rotary = Wrapped<Wrapper, &K::rotary>::Call,
      .add = Wrapped<Wrapper, &K::add>::Call,
      .accumulate = Wrapped<Wrapper, &K::accumulate>::Call,
      .round_gradient = Wrapped<Wrapper, &K::round_gradient>::Call,
      .dropout = Wrapped<Wrapper, &K::dropout>::Call,
      .embedding_forward = Wrapped<Wrapper, &K::embedding_forward>::Call,
      .embedding_backward_weight =
          Wrapped<Wrapper, &K::embedding_backward_weight>::Call,
      .embedding_backward_position =
          Wrapped<Wrapper, &K::embedding_backward_position>::Call,
      .attention_forward = Wrapped<Wrapper, &K::attention_forward>::Call,
      .attention_backward = Wrapped<Wrapper, &K::attention_backward>::Call,
      .attention_forward_scratch_bytes = inner.attention_forward_scratch_bytes,
      .attention_backward_scratch_bytes =
          inner.attention_backward_scratch_bytes,
      .cross_entropy = Wrapped<Wrapper, &K::cross_entropy>::Call,
  };
}

}  // namespace delink
