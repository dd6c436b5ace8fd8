// Tensor cores: products of small bf16 matrices by a whole warp, with sums in
// float. The matrices are in registers. Lane l has, with g = l / 4 and
// t = 2 (l % 4),
//   A [16, 16]: (g, t), (g + 8, t), (g, t + 8), (g + 8, t + 8), and each time
//               the next column: the lower half of a register first
//   B [16, 8]:  (t, g), (t + 8, g), and each time the next row
//   C [16, 8]:  (g, t), (g, t + 1), (g + 8, t), (g + 8, t + 1)
// Tests compile device code against another matrix.cuh (docs/cuda.md).
#pragma once

#include <cstdint>

#include "framework/device/cuda/launch.cuh"

namespace delink::cuda {

// Four 8 x 8 matrices from shared memory. Row r of matrix i is the 8 numbers at
// `row` of lane 8 i + r, 16-byte aligned. The lane gets the elements (g, t) and
// (g, t + 1) of each or, if kTransposed, (t, g) and (t + 1, g).
template <bool kTransposed>
__device__ void LoadMatrices(const void* row, uint32_t (&to)[4]) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(at)
        : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  }
}

// C += A B. The order of a sum depends on nothing but k.
__device__ inline void AddProduct(const uint32_t (&a)[4], uint32_t b0,
                                  uint32_t b1, float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace delink::cuda
