#include "layers/kernels/ref/ref.h"

namespace delink::ref {

template <typename T>
const Kernels& Table() {
  static constexpr Kernels kTable = DELINK_TABLE_OF_T;
  return kTable;
}

template const Kernels& Table<float>();
template const Kernels& Table<double>();
template const Kernels& Table<BFloat16>();

}  // namespace delink::ref
