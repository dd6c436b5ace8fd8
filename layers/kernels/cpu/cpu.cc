#include "layers/kernels/cpu/cpu.h"

#include "layers/kernels/ref/ref.h"

namespace delink::cpu {

const Kernels& Table() { return ref::Table<float>(); }

}  // namespace delink::cpu
