// The scratch of CUDA's attention as a pure function of the dimensions: the
// sizes that AttentionForwardScratch and AttentionBackwardScratch (cuda.h)
// return, and the parts of a call. Plain C++ without CUDA, so that a plan is
// the same on a machine without it.
//
// Our own kernels need no scratch. cuDNN's need it for the backward pass in
// bf16: the deterministic form stores the gradient of every score of a call,
// the other one a sum of dq in f32. So cuDNN is called for a few samples at a
// time or, if one sample needs too much, for a few of its key/value heads with
// their query heads. No scratch is requested if the stream's own is enough.
#pragma once

#include "layers/kernels/arguments.h"

namespace delink::cuda {

// Whether cuDNN, if there is one, computes a bf16 call with these dimensions.
// It does not compute generation, which has a new Tk at each token, since cuDNN
// compiles a kernel for each shape. Nor rows of several documents: each would
// be a sample, and cuDNN compiles a kernel for each number of samples too.
bool IsForCudnn(const AttentionForwardArgs&);
bool IsForCudnn(const AttentionBackwardArgs&);

// The part of the backward pass that one call of cuDNN computes.
struct AttentionPart {
  int64_t samples;    // divides B
  int64_t kv_heads;   // divides Hkv, and is Hkv where samples > 1
  int64_t workspace;  // most bytes that it may use
};
AttentionPart BackwardPart(const AttentionBackwardArgs&);

}  // namespace delink::cuda
