// The scratch of CUDA's attention as a pure function of the dimensions: what
// AttentionForwardScratch and AttentionBackwardScratch (cuda.h) say, and of
// what parts it is. Plain C++ without CUDA: a plan is the same on a machine
// that has none.
//
// Our own kernels need no scratch. cuDNN's do for the backward pass in bf16:
// its deterministic form keeps the gradient of every score of a call in memory,
// the other one a sum of dq in f32. So it is called for a few samples at a time
// or, where one sample is too much, for a few of its key/value heads with their
// query heads, and what fits into the stream's own scratch is not asked for.
#pragma once

#include "layers/kernels/arguments.h"

namespace delink::cuda {

// Whether a bf16 call with these dimensions is cuDNN's, if there is a cuDNN.
// Generation, which has a new Tk at each token, is not: cuDNN compiles a kernel
// for each shape. Nor are rows of several documents: cuDNN would take each as a
// sample of its own, and it compiles a kernel for each number of samples too.
bool IsForCudnn(const AttentionForwardArgs&);
bool IsForCudnn(const AttentionBackwardArgs&);

// What one call of cuDNN's backward pass works on.
struct AttentionPart {
  int64_t samples;    // divides B
  int64_t kv_heads;   // divides Hkv, and is Hkv where samples > 1
  int64_t workspace;  // bytes that it may take at most
};
AttentionPart BackwardPart(const AttentionBackwardArgs&);

}  // namespace delink::cuda
