// Attention in bf16 on tensor cores, with cuDNN. cudnn/ implements it;
// no_cudnn/ is for builds without cuDNN's headers and always returns false.
#pragma once

#include "layers/kernels/arguments.h"

namespace delink {

class Stream;

namespace cuda {

// T is bf16. True: the call has been enqueued, and its bits are the same every
// time. False: nothing was done, since there is no cuDNN or it does not take
// such a call. Probabilities and the gradients of scores are rounded to bf16
// before it multiplies by them.
bool CudnnAttentionForward(Stream&, const AttentionForwardArgs&);
bool CudnnAttentionBackward(Stream&, const AttentionBackwardArgs&);

}  // namespace cuda
}  // namespace delink
