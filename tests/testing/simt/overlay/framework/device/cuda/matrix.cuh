// Takes the place of framework/device/cuda/matrix.cuh where device code is
// compiled for the emulated device.
#pragma once

#include "framework/device/cuda/launch.cuh"
#include "tests/testing/simt/matrix.h"

namespace delink::cuda {

template <bool kTransposed>
void LoadMatrices(const void* row, uint32_t (&to)[4],
                  simt::CodeLine where = {__builtin_FILE(), __builtin_LINE()}) {
  const uint4 bytes = Load16(row);
  simt::ShareRows({bytes.x, bytes.y, bytes.z, bytes.w}, kTransposed, to, where);
}

inline void AddProduct(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                       float (&c)[4],
                       simt::CodeLine where = {__builtin_FILE(),
                                               __builtin_LINE()}) {
  simt::MultiplyMatrices(a, {b0, b1}, c, where);
}

}  // namespace delink::cuda
