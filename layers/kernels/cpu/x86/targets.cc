#include "layers/kernels/cpu/targets.h"

namespace delink::cpu {

namespace avx512 {
extern const Kernels kTable;
}
namespace avx2 {
extern const Kernels kTable;
}
namespace baseline {
extern const Kernels kTable;
}

std::vector<Target> Targets() {
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return {{"avx512", avx512, &avx512::kTable},
          {"avx2", avx2, &avx2::kTable},
          {"baseline", true, &baseline::kTable}};
}

}  // namespace delink::cpu
