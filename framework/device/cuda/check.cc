#include "framework/device/cuda/check.h"

#include <cstdio>
#include <cstdlib>

#include "framework/base/log.h"

namespace delink::cuda {

void Fail(const char* file, int line, const char* call, cudaError_t error) {
  std::fprintf(stderr, "rank %d: %s:%d: CUDA: %s: %s: %s\n", LogRank(), file,
               line, call, cudaGetErrorName(error), cudaGetErrorString(error));
  std::fflush(stderr);
  std::abort();
}

}  // namespace delink::cuda
