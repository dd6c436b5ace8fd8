// What lanes of a warp exchange where a real device has tensor cores
// (framework/device/cuda/matrix.cuh has the layouts).
#pragma once

#include <array>
#include <cstdint>

#include "tests/testing/simt/block.h"

namespace delink::simt {

// Elements of four 8 x 8 matrices, of which each lane has read a row.
void ShareRows(const std::array<uint32_t, 4>& row, bool transposed,
               uint32_t (&to)[4], CodeLine where);
// Sums in float, in the order of k.
void MultiplyMatrices(const uint32_t (&a)[4], const std::array<uint32_t, 2>& b,
                      float (&c)[4], CodeLine where);

}  // namespace delink::simt
