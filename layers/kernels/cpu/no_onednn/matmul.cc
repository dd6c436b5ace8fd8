#include "layers/kernels/cpu/matmul.h"

#include "framework/tensor/bfloat16.h"

namespace delink::cpu {

template <typename T>
void ChooseMatmul(Kernels*) {}
template void ChooseMatmul<float>(Kernels*);
template void ChooseMatmul<BFloat16>(Kernels*);

template <typename T>
void (*LibraryMatmul())(Stream&, const MatmulArgs&) {
  return nullptr;
}
template void (*LibraryMatmul<float>())(Stream&, const MatmulArgs&);
template void (*LibraryMatmul<BFloat16>())(Stream&, const MatmulArgs&);

bool LibraryMultipliesBf16() { return false; }

}  // namespace delink::cpu
