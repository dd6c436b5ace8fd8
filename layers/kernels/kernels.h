// The kernels of one device and dtype, as a table of functions. An op asks
// FindKernels (find_kernels.h) for the table once and calls its entries;
// arguments.h says what each entry computes.
//
// A call enqueues work on the stream and returns. On the CPU the calling thread
// and its OpenMP team run it at once, and it is done on return. Kernels
// allocate nothing in steady state; their arguments hold all that they need.
//
// All kernels are in one list, DELINK_KERNELS, from which every table and every
// backend's declarations are generated. To add a kernel, add
// - its line there and its arguments in arguments.h,
// - a `Count` in work.cc, which counts the work of a call,
// - a function template of its name in ref/, cpu/simd/ and cuda/, instantiated
//   in the same file. If one is missing, no program links: "undefined
//   reference to `void delink::ref::SwishForward<float>(...)'".
#pragma once

#include <cstdint>

#include "layers/kernels/arguments.h"
#include "layers/kernels/expert_arguments.h"

namespace delink {

class Stream;

// KERNEL(entry, Function): the table's `entry` is Function<T> of the backend's
// namespace, void(Stream&, const FunctionArgs&).
#define DELINK_KERNELS(KERNEL)                                   \
  /* Matrix products, alone and with an epilogue. */             \
  KERNEL(matmul, Matmul)                                         \
  KERNEL(matmul_gelu, MatmulGelu)                                \
  KERNEL(matmul_gelu_backward, MatmulGeluBackward)               \
  KERNEL(matmul_bias_grad, MatmulBiasGrad)                       \
  KERNEL(bias_grad, BiasGrad)                                    \
  /* Norms of rows, with or without a residual that is added. */ \
  KERNEL(layer_norm_forward, LayerNormForward)                   \
  KERNEL(layer_norm_backward_input, LayerNormBackwardInput)      \
  KERNEL(layer_norm_backward_weight, LayerNormBackwardWeight)    \
  KERNEL(rms_norm_forward, RmsNormForward)                       \
  KERNEL(rms_norm_backward_input, RmsNormBackwardInput)          \
  KERNEL(rms_norm_backward_weight, RmsNormBackwardWeight)        \
  /* Norms of the heads of queries and keys. */                  \
  KERNEL(qk_norm_forward, QkNormForward)                         \
  KERNEL(qk_norm_backward_input, QkNormBackwardInput)            \
  KERNEL(qk_norm_backward_weight, QkNormBackwardWeight)          \
  /* Element by element. */                                      \
  KERNEL(gelu_forward, GeluForward)                              \
  KERNEL(gelu_backward, GeluBackward)                            \
  KERNEL(swiglu_forward, SwiGluForward)                          \
  KERNEL(swiglu_backward, SwiGluBackward)                        \
  KERNEL(rotary, Rotary) /* its own backward */                  \
  KERNEL(add, Add)                                               \
  KERNEL(accumulate, Accumulate)                                 \
  KERNEL(round_gradient, RoundGradient)                          \
  KERNEL(widen, Widen)                                           \
  KERNEL(dropout, Dropout) /* its own backward */                \
  /* Rows of tables. */                                          \
  KERNEL(embedding_forward, EmbeddingForward)                    \
  KERNEL(embedding_backward_weight, EmbeddingBackwardWeight)     \
  KERNEL(embedding_backward_position, EmbeddingBackwardPosition) \
  /* Attention, which is given scratch: how much is below. */    \
  KERNEL(attention_forward, AttentionForward)                    \
  KERNEL(attention_backward, AttentionBackward)                  \
  /* The loss and the gradient of the logits, in their place. */ \
  KERNEL(cross_entropy, CrossEntropy)                            \
  /* The same where ranks have some of the columns each. */      \
  KERNEL(vocab_max, VocabMax)                                    \
  KERNEL(vocab_sums, VocabSums)                                  \
  KERNEL(vocab_cross_entropy, VocabCrossEntropy)                 \
  /* Mixtures of experts (expert_arguments.h). */                \
  KERNEL(route, Route)                                           \
  KERNEL(route_backward, RouteBackward)                          \
  KERNEL(route_statistics, RouteStatistics)                      \
  KERNEL(sum_rows, SumRows)                                      \
  KERNEL(record_loads, RecordLoads)                              \
  KERNEL(count_pairs, CountPairs)                                \
  KERNEL(balance, Balance)                                       \
  KERNEL(number_tokens, NumberTokens)                            \
  KERNEL(order_tokens, OrderTokens)                              \
  KERNEL(kept_ids, KeptIds)                                      \
  KERNEL(assign_rows, AssignRows)                                \
  KERNEL(assign_slots, AssignSlots)                              \
  KERNEL(gather_rows, GatherRows)                                \
  KERNEL(combine_rows, CombineRows)                              \
  KERNEL(grouped_matmul, GroupedMatmul)                          \
  KERNEL(grouped_bias, GroupedBias)                              \
  KERNEL(grouped_bias_grad, GroupedBiasGrad)                     \
  KERNEL(grouped_bias_gates, GroupedBiasGates)                   \
  KERNEL(expert_act_forward, ExpertActForward)                   \
  KERNEL(expert_act_backward, ExpertActBackward)

// SCRATCH(entry, Function): the table's `entry` is the backend's
// FunctionScratch<T>, int64_t(const FunctionArgs&, int threads).
//
// Bytes of scratch for a call with these dimensions on up to `threads` threads;
// 0: as many as the device would use. It reads no memory, but depends on
// whether `positions` is null. With less scratch the call uses fewer threads;
// it needs at least the bytes for one thread. May be 0.
#define DELINK_SCRATCH_BYTES(SCRATCH)                        \
  SCRATCH(attention_forward_scratch_bytes, AttentionForward) \
  SCRATCH(attention_backward_scratch_bytes, AttentionBackward)

struct Kernels {
#define DELINK_ENTRY(entry, Function) \
  void (*entry)(Stream&, const Function##Args&);
#define DELINK_QUESTION(entry, Function) \
  int64_t (*entry)(const Function##Args&, int threads);
  DELINK_KERNELS(DELINK_ENTRY)
  DELINK_SCRATCH_BYTES(DELINK_QUESTION)
#undef DELINK_ENTRY
#undef DELINK_QUESTION
};

}  // namespace delink
