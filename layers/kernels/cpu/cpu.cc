#include "layers/kernels/cpu/cpu.h"

#include "layers/kernels/cpu/matmul.h"
#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {
namespace {

Kernels Best() {
  for (const Target& target : Targets()) {
    if (!target.supported) continue;
    Kernels kernels = *target.kernels;
    ChooseMatmul(&kernels);
    return kernels;
  }
  return {};  // unreachable: the last target always runs
}

}  // namespace

const Kernels& Table() {
  static const Kernels kTable = Best();
  return kTable;
}

}  // namespace delink::cpu
