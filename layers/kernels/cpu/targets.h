// The instruction sets that the vectorised kernels were compiled for.
#pragma once

#include <vector>

#include "layers/kernels/kernels.h"

namespace delink::cpu {

struct InstructionSet {
  const char* name;
  bool supported;  // by this machine
  const Kernels* f32;
  const Kernels* bf16;
  bool multiplies_bf16 = false;  // with bf16 instructions
};

// Best first; the last one always runs.
std::vector<InstructionSet> Targets();

}  // namespace delink::cpu
