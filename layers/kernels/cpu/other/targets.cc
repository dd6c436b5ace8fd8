#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {

namespace baseline {
extern const Kernels kTable;
}

std::vector<Target> Targets() {
  return {{"baseline", true, &baseline::kTable}};
}

}  // namespace delink::cpu
