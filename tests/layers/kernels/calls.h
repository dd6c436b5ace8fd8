// Arguments of kernels that tests fill in alike, and calls with what they need.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/kernels/arguments.h"
#include "layers/kernels/attention_arguments.h"
#include "layers/kernels/kernels.h"
#include "tests/testing/guarded.h"

namespace delink::testing {

// C [m, n] of A [m, k] and B [k, n], or of what they are transposed; rows lie
// one behind the other.
inline MatmulArgs ProductOf(int64_t m, int64_t n, int64_t k, const void* a,
                            const void* b, void* c, bool transpose_a = false,
                            bool transpose_b = false) {
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .a = a,
          .lda = transpose_a ? m : k,
          .b = b,
          .ldb = transpose_b ? k : n,
          .c = c,
          .ldc = n};
}

// The gradient of a weight [m, n] over `rows` rows of dy and x.
inline MatmulArgs WeightGradient(int64_t m, int64_t n, int64_t rows,
                                 const void* dy, const void* x, void* dw,
                                 bool accumulate) {
  MatmulArgs args = ProductOf(m, n, rows, dy, x, dw, /*transpose_a=*/true);
  args.accumulate = accumulate;
  return args;
}

// The backward pass of a call, but for the gradients it is given and makes.
inline AttentionBackwardArgs BackwardOf(const AttentionForwardArgs& f) {
  return {.B = f.B,
          .H = f.H,
          .Hkv = f.Hkv,
          .Dh = f.Dh,
          .Tq = f.Tq,
          .Tk = f.Tk,
          .scale = f.scale,
          .window = f.window,
          .positions = f.positions,
          .positions_row = f.positions_row,
          .q = f.q,
          .q_strides = f.q_strides,
          .k = f.k,
          .v = f.v,
          .kv_strides = f.kv_strides,
          .o = f.o,
          .o_strides = f.o_strides,
          .lse = f.lse};
}

// Scratch that holds not-a-number.
inline Guarded<unsigned char> ScratchOf(int64_t bytes) {
  return Guarded<unsigned char>(
      std::vector<unsigned char>(static_cast<size_t>(bytes), 0xFF));
}

// With scratch for so many threads; 0: all there are.
inline void Attend(const Kernels& kernels, Stream& stream,
                   AttentionForwardArgs args, int threads = 0) {
  auto scratch =
      ScratchOf(kernels.attention_forward_scratch_bytes(args, threads));
  args.scratch = scratch.data();
  args.scratch_bytes = scratch.size();
  kernels.attention_forward(stream, args);
}

inline void Attend(const Kernels& kernels, Stream& stream,
                   AttentionBackwardArgs args, int threads = 0) {
  auto scratch =
      ScratchOf(kernels.attention_backward_scratch_bytes(args, threads));
  args.scratch = scratch.data();
  args.scratch_bytes = scratch.size();
  kernels.attention_backward(stream, args);
}

}  // namespace delink::testing
