#include "tests/testing/simt/matrix.h"

#include <bit>
#include <cstring>

#include "tests/testing/simt/device_code.h"

namespace delink::simt {
namespace {

using OfLanes = std::array<std::array<uint32_t, 2>, 32>;

// Two numbers of every lane.
OfLanes Gather(uint32_t first, uint32_t second, CodeLine where) {
  const uint64_t value = std::bit_cast<uint64_t>(std::array{first, second});
  const uint64_t at =
      WaitForWarp({Wait::kMatrix, 0xFFFFFFFF, value, 0, 32}, where);
  OfLanes all;
  std::memcpy(&all, reinterpret_cast<const void*>(at), sizeof all);
  return all;
}

size_t Lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
         32;
}

uint32_t HalfOf(uint32_t two, size_t which) {
  return which % 2 == 0 ? two & 0xFFFF : two >> 16;
}
float FloatOf(uint32_t two, size_t which) {
  return std::bit_cast<float>(HalfOf(two, which) << 16);
}

}  // namespace

void ShareRows(const std::array<uint32_t, 4>& row, bool transposed,
               uint32_t (&to)[4], CodeLine where) {
  const OfLanes halves[] = {Gather(row[0], row[1], where),
                            Gather(row[2], row[3], where)};
  const size_t g = Lane() / 4, t = 2 * (Lane() % 4);
  for (size_t i = 0; i < 4; ++i) {
    const auto element = [&](size_t r, size_t c) {
      return HalfOf(halves[c / 4][8 * i + r][c / 2 % 2], c);
    };
    to[i] = transposed ? element(t, g) | element(t + 1, g) << 16
                       : element(g, t) | element(g, t + 1) << 16;
  }
}

void MultiplyMatrices(const uint32_t (&a)[4], const std::array<uint32_t, 2>& b,
                      float (&c)[4], CodeLine where) {
  // Columns of A below 8, and from 8 on.
  const OfLanes as[] = {Gather(a[0], a[1], where), Gather(a[2], a[3], where)};
  const OfLanes bs = Gather(b[0], b[1], where);
  const size_t g = Lane() / 4, t = 2 * (Lane() % 4);
  for (size_t i = 0; i < 4; ++i) {
    const size_t n = t + i % 2;
    for (size_t k = 0; k < 16; ++k) {
      const size_t from = k % 8 / 2;
      c[i] += FloatOf(as[k / 8][4 * g + from][i / 2], k) *
              FloatOf(bs[4 * n + from][k / 8], k);
    }
  }
}

}  // namespace delink::simt
