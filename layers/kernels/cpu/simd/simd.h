// The vectorised kernels. The sources of this folder are compiled once for each
// instruction set, with DELINK_SIMD naming the namespace (baseline, avx2,
// avx512, avx512bf16); which one runs is decided at run time.
//
// Because the same inline function of a header would exist once per
// instruction set, and the linker keeps any one of them, these sources use
// nothing inline from outside this folder: no standard containers or
// algorithms, no checks, no functions of rng.h or bfloat16.h. What they need of
// that kind is in helpers.h, compiled once.
#pragma once

#include "layers/kernels/backend.h"

namespace delink::cpu::DELINK_SIMD {

extern const Kernels kF32;
extern const Kernels kBf16;

// T is float or BFloat16.
DELINK_KERNELS(DELINK_DECLARE_KERNEL)

}  // namespace delink::cpu::DELINK_SIMD
