#include "layers/kernels/cpu/targets.h"

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/backend.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cpu/x86/amx.h"

namespace delink::cpu {

namespace amx {
template <typename T>
void Matmul(Stream&, const MatmulArgs&);
}  // namespace amx
namespace avx512bf16 {
extern const Kernels kF32;
extern const Kernels kBf16;
DELINK_KERNELS(DELINK_DECLARE_KERNEL)
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

namespace {

// AVX-512's kernels, but for products of bf16.
const Kernels& AmxBf16() {
  using Made = Composed<amx::Matmul<BFloat16>, avx512bf16::BiasGrad<BFloat16>,
                        avx512bf16::GeluForward<BFloat16>,
                        avx512bf16::GeluBackward<BFloat16>>;
  static const Kernels kTable = [] {
    Kernels kernels = avx512bf16::kBf16;
    kernels.matmul = amx::Matmul<BFloat16>;
    kernels.matmul_gelu = Made::MatmulGelu;
    kernels.matmul_gelu_backward = Made::MatmulGeluBackward;
    kernels.matmul_bias_grad = Made::MatmulBiasGrad;
    return kernels;
  }();
  return kTable;
}

}  // namespace

std::vector<InstructionSet> Targets() {
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool avx512bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  return {{"amx", avx512bf16 && HasAmx(), &avx512bf16::kF32, &AmxBf16(), true},
          {"avx512bf16", avx512bf16, &avx512bf16::kF32, &avx512bf16::kBf16},
          {"avx512", avx512, &avx512::kF32, &avx512::kBf16},
          {"avx2", avx2, &avx2::kF32, &avx2::kBf16},
          {"baseline", true, &baseline::kF32, &baseline::kBf16}};
}

}  // namespace delink::cpu
