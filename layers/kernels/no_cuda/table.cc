// A build without CUDA: no kernels for its devices.
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {

template <typename T>
const Kernels* Table() {
  return nullptr;
}

std::string MissingLibrary() { return "this build has no CUDA backend"; }
std::string OpenAttention(Stream&) { return MissingLibrary(); }

template const Kernels* Table<float>();
template const Kernels* Table<BFloat16>();

}  // namespace delink::cuda
