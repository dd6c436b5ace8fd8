// cuDNN's door: attention in bf16 on tensor cores. cudnn/ has it, no_cudnn/ is
// for builds without cuDNN's headers and always says no.
#pragma once

#include "layers/kernels/arguments.h"

namespace delink {

class Stream;

namespace cuda {

// T is bf16. True: the call has been enqueued, and its bits are the same every
// time. False: nothing was done, since there is no cuDNN, or it does not take
// such a call. It multiplies by probabilities, and by the gradients of scores,
// rounded to bf16.
bool CudnnAttentionForward(Stream&, const AttentionForwardArgs&);
bool CudnnAttentionBackward(Stream&, const AttentionBackwardArgs&);

}  // namespace cuda
}  // namespace delink
