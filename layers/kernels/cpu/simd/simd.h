// The vectorised kernels. The sources of this folder are compiled once for each
// instruction set. DELINK_SIMD is its namespace (baseline, avx2, avx512,
// avx512bf16); the program chooses one at run time.
//
// An inline function of another header would exist once per instruction set,
// and the linker would keep any one of them. So these sources use nothing
// inline from outside this folder: no standard containers or algorithms, no
// checks, no functions of rng.h or bfloat16.h. helpers.h, which is compiled
// once, has replacements.
#pragma once

#include "layers/kernels/backend.h"

namespace delink::cpu::DELINK_SIMD {

extern const Kernels kF32;
extern const Kernels kBf16;

// T is float or BFloat16.
DELINK_KERNELS(DELINK_DECLARE_KERNEL)

}  // namespace delink::cpu::DELINK_SIMD
