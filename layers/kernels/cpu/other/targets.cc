#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {

namespace baseline {
extern const Kernels kF32;
extern const Kernels kBf16;
}  // namespace baseline

std::vector<InstructionSet> Targets() {
  return {{"baseline", true, &baseline::kF32, &baseline::kBf16}};
}

}  // namespace delink::cpu
