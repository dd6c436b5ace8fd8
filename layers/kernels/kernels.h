// The mathematics of one device and dtype, as a table of functions. An op asks
// FindKernels (find_kernels.h) for the table once and calls through it;
// arguments.h says what each entry computes.
//
// A call enqueues work on the stream and returns. On the CPU it runs at once,
// on the calling thread with its OpenMP team, and is done on return. Nothing is
// allocated in steady state: what a kernel needs comes with its arguments.
#pragma once

#include <cstdint>

#include "layers/kernels/arguments.h"

namespace delink {

class Stream;

struct Kernels {
  void (*matmul)(Stream&, const MatmulArgs&);
  void (*matmul_gelu)(Stream&, const MatmulGeluArgs&);
  void (*matmul_gelu_backward)(Stream&, const MatmulGeluBackwardArgs&);
  void (*matmul_bias_grad)(Stream&, const MatmulBiasGradArgs&);
  void (*bias_grad)(Stream&, const BiasGradArgs&);

  void (*layer_norm_forward)(Stream&, const LayerNormForwardArgs&);
  void (*layer_norm_backward_input)(Stream&, const LayerNormBackwardInputArgs&);
  void (*layer_norm_backward_weight)(Stream&,
                                     const LayerNormBackwardWeightArgs&);
  void (*rms_norm_forward)(Stream&, const RmsNormForwardArgs&);
  void (*rms_norm_backward_input)(Stream&, const RmsNormBackwardInputArgs&);
  void (*rms_norm_backward_weight)(Stream&, const RmsNormBackwardWeightArgs&);

  void (*qk_norm_forward)(Stream&, const QkNormForwardArgs&);
  void (*qk_norm_backward_input)(Stream&, const QkNormBackwardInputArgs&);
  void (*qk_norm_backward_weight)(Stream&, const QkNormBackwardWeightArgs&);

  void (*gelu_forward)(Stream&, const GeluForwardArgs&);
  void (*gelu_backward)(Stream&, const GeluBackwardArgs&);
  void (*swiglu_forward)(Stream&, const SwiGluForwardArgs&);
  void (*swiglu_backward)(Stream&, const SwiGluBackwardArgs&);
  void (*rotary)(Stream&, const RotaryArgs&);
  void (*add)(Stream&, const AddArgs&);
  void (*accumulate)(Stream&, const AccumulateArgs&);
  void (*round_gradient)(Stream&, const RoundGradientArgs&);
  void (*dropout)(Stream&, const DropoutArgs&);

  void (*embedding_forward)(Stream&, const EmbeddingForwardArgs&);
  void (*embedding_backward_weight)(Stream&,
                                    const EmbeddingBackwardWeightArgs&);
  void (*embedding_backward_position)(Stream&,
                                      const EmbeddingBackwardPositionArgs&);

  void (*attention_forward)(Stream&, const AttentionForwardArgs&);
  void (*attention_backward)(Stream&, const AttentionBackwardArgs&);
  // Bytes of scratch for a call with these dimensions (pointers are not
  // followed, but `positions` may be null or not) on up to `threads` threads, 0
  // for all the device would use. Less makes the call use fewer threads; at
  // least the bytes for one thread are needed. May be 0.
  int64_t (*attention_forward_scratch_bytes)(const AttentionForwardArgs&,
                                             int threads);
  int64_t (*attention_backward_scratch_bytes)(const AttentionBackwardArgs&,
                                              int threads);

  void (*cross_entropy)(Stream&, const CrossEntropyArgs&);
};

}  // namespace delink
