// The tables of the instruction sets that were built: all, or those of the
// machine that built them (DELINK_BUILT_..., CMakeLists.txt).
#include "layers/kernels/cpu/targets.h"

#include "framework/tensor/bfloat16.h"
#include "layers/kernels/backend.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cpu/x86/amx.h"

namespace delink::cpu {

#define DELINK_DECLARE_TABLES(target) \
  namespace target {                  \
  extern const Kernels kF32;          \
  extern const Kernels kBf16;         \
  }

DELINK_DECLARE_TABLES(avx512bf16)
DELINK_DECLARE_TABLES(avx512)
DELINK_DECLARE_TABLES(avx2)
DELINK_DECLARE_TABLES(baseline)

#if defined(DELINK_BUILT_AMX)
namespace avx512bf16 {
DELINK_KERNELS(DELINK_DECLARE_KERNEL)
}  // namespace avx512bf16
namespace amx {
template <typename T>
void Matmul(Stream&, const MatmulArgs&);
template <typename T>
void GroupedMatmul(Stream&, const GroupedMatmulArgs&);
}  // namespace amx

namespace {

// AVX-512's kernels, except for bf16 products.
const Kernels& AmxBf16() {
  using Made = Composed<amx::Matmul<BFloat16>, avx512bf16::BiasGrad<BFloat16>,
                        avx512bf16::GeluForward<BFloat16>,
                        avx512bf16::GeluBackward<BFloat16>>;
  static const Kernels kTable = [] {
    Kernels kernels = avx512bf16::kBf16;
    kernels.matmul = amx::Matmul<BFloat16>;
    kernels.grouped_matmul = amx::GroupedMatmul<BFloat16>;
    kernels.matmul_gelu = Made::MatmulGelu;
    kernels.matmul_gelu_backward = Made::MatmulGeluBackward;
    kernels.matmul_bias_grad = Made::MatmulBiasGrad;
    return kernels;
  }();
  return kTable;
}

}  // namespace
#endif

std::vector<InstructionSet> Targets() {
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  [[maybe_unused]] const bool has_bf16 =
      has_avx512 && __builtin_cpu_supports("avx512bf16");
  return {
#if defined(DELINK_BUILT_AMX)
    {"amx", has_bf16 && HasAmx(), &avx512bf16::kF32, &AmxBf16(), true},
#endif
#if defined(DELINK_BUILT_AVX512BF16)
        {"avx512bf16", has_bf16, &avx512bf16::kF32, &avx512bf16::kBf16},
#endif
#if defined(DELINK_BUILT_AVX512)
        {"avx512", has_avx512, &avx512::kF32, &avx512::kBf16},
#endif
#if defined(DELINK_BUILT_AVX2)
        {"avx2", has_avx2, &avx2::kF32, &avx2::kBf16},
#endif
    {
      "baseline", true, &baseline::kF32, &baseline::kBf16
    }
  };
}

}  // namespace delink::cpu
