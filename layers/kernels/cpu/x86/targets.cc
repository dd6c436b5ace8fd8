#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {

namespace avx512bf16 {
extern const Kernels kF32;
extern const Kernels kBf16;
}  // namespace avx512bf16
namespace avx512 {
extern const Kernels kF32;
extern const Kernels kBf16;
}  // namespace avx512
namespace avx2 {
extern const Kernels kF32;
extern const Kernels kBf16;
}  // namespace avx2
namespace baseline {
extern const Kernels kF32;
extern const Kernels kBf16;
}  // namespace baseline

std::vector<InstructionSet> Targets() {
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool avx512bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  return {{"avx512bf16", avx512bf16, &avx512bf16::kF32, &avx512bf16::kBf16},
          {"avx512", avx512, &avx512::kF32, &avx512::kBf16},
          {"avx2", avx2, &avx2::kF32, &avx2::kBf16},
          {"baseline", true, &baseline::kF32, &baseline::kBf16}};
}

}  // namespace delink::cpu
