#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/cudnn_attention.h"

namespace delink::cuda {

std::string OpenAttention(Stream&) {
  return "this build has no cuDNN; install its headers with tools/bootstrap.sh "
         "--cuda, and build again";
}

bool CudnnAttentionForward(Stream&, const AttentionForwardArgs&) {
  return false;
}
bool CudnnAttentionBackward(Stream&, const AttentionBackwardArgs&) {
  return false;
}

}  // namespace delink::cuda
