#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {

template <typename T>
const Kernels* Table() {
  static constexpr Kernels kTable = DELINK_TABLE_OF_T;
  return &kTable;
}

template const Kernels* Table<float>();
template const Kernels* Table<BFloat16>();

}  // namespace delink::cuda
