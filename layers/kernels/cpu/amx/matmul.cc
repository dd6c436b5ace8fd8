// bf16 matrix products with AMX. A step is 32 values of k, a panel two tiles of
// rows or columns, and four tiles of C stay in registers for all k. Only the
// steps, which are counted from k = 0, determine the order of additions.
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/cpu/amx/tiles.h"
#include "layers/kernels/cpu/simd/blocks.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/simd/transpose.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kTile = 16;            // rows, and 32-bit words of a row
constexpr int64_t kTileBytes = 64;       // of a row
constexpr int64_t kTileWords = 16 * 16;  // of all

// A word is two bf16, consecutive in k.
typedef uint32_t Words __attribute__((vector_size(kTileBytes)));
typedef uint16_t Halves __attribute__((vector_size(kTileBytes / 2)));

template <typename V>
V LoadFirst(const BFloat16* p, int64_t count) {
  V v{};
  if (count >= static_cast<int64_t>(sizeof(V) / 2)) {
    std::memcpy(&v, p, sizeof(V));
  } else if (count > 0) {
    std::memcpy(&v, p, static_cast<size_t>(2 * count));
  }
  return v;
}

Words Zip(const BFloat16* even, const BFloat16* odd, int64_t count) {
  const Halves low = LoadFirst<Halves>(even, count);
  const Halves high = LoadFirst<Halves>(odd, odd != nullptr ? count : 0);
  return __builtin_convertvector(low, Words) |
         __builtin_convertvector(high, Words) << 16;
}

// Words of A are at [lane][pair] of a tile, of B at [pair][lane]; lanes past
// `lanes` and numbers past k are 0. One of the strides is 1.
template <bool kIsA>
void PackTile(const BFloat16* from, int64_t stride, int64_t k_stride,
              int64_t lanes, int64_t k, uint32_t* to) {
  Words rows[kTile];
  const bool by_lane = k_stride == 1;
  for (int64_t i = 0; i < kTile; ++i) {
    if (by_lane) {
      rows[i] = i < lanes ? LoadFirst<Words>(from + i * stride, k) : Words{};
    } else if (2 * i < k) {
      const BFloat16* pair = from + 2 * i * k_stride;
      rows[i] = Zip(pair, 2 * i + 1 < k ? pair + k_stride : nullptr, lanes);
    } else {
      rows[i] = Words{};
    }
  }
  if (by_lane != kIsA) Transpose(rows);
  std::memcpy(to, rows, sizeof(rows));
}

struct AmxTiles {
  using Element = uint16_t;
  static constexpr int64_t kRows = 2 * kTile;
  static constexpr int64_t kColumns = 2 * kTile;
  // A panel of B fits the L1 cache, a block's slice of A and its sums the L2.
  static constexpr int64_t kBlockRows = 512;
  static constexpr int64_t kStep = 2 * kTile;
  static constexpr int64_t kSlice = 384;
  static constexpr int64_t kCopyA = 110;  // transposed
  static constexpr int64_t kCopyB = 80;
  using Scope = Tiles;

  // to[panel][step][tile of the panel]
  template <bool kIsA, typename T>
  static void Pack(const T* from, int64_t stride, int64_t k_stride,
                   int64_t count, int64_t k, uint16_t* to) {
    auto* words = reinterpret_cast<uint32_t*>(to);
    for (int64_t panel = 0; panel < count; panel += kRows) {
      for (int64_t l = 0; l < k; l += kStep) {
        for (int64_t tile = panel; tile < panel + kRows; tile += kTile) {
          PackTile<kIsA>(from + tile * stride + l * k_stride, stride, k_stride,
                         count - tile, k - l, words);
          words += kTileWords;
        }
      }
    }
  }

  template <typename T>
  static int64_t RowsInPlace(const MatmulArgs& s, int64_t rows) {
    return !s.transpose_a && s.k % kStep == 0 ? rows / kRows * kRows : 0;
  }

  static void Multiply(const Panel<uint16_t>& p) {
    alignas(64) float beside[kRows * kColumns];
    const bool whole = p.rows == kRows && p.columns == kColumns;
    float* const c = whole ? p.c : beside;
    const int64_t ldc = whole ? p.ldc : kColumns;
    if (!whole && p.accumulate) {
      Copy(p.rows, p.columns, p.c, p.ldc, beside, kColumns);
    }
    MultiplyWhole(p, c, ldc);
    if (!whole) Copy(p.rows, p.columns, beside, kColumns, p.c, p.ldc);
  }

 private:
  static void Copy(int64_t rows, int64_t columns, const float* from,
                   int64_t from_ld, float* to, int64_t to_ld) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        to[i * to_ld + j] = from[i * from_ld + j];
      }
    }
  }

  static void MultiplyWhole(const Panel<uint16_t>& p, float* c, int64_t ldc) {
    const int64_t row = ldc * static_cast<int64_t>(sizeof(float));
    // In words: A from one step to the next, and its lower tile.
    const int64_t next = p.lda == 0 ? 2 * kTileWords : kTile;
    const int64_t lower = p.lda == 0 ? kTileWords : kTile * p.lda / 2;
    const int64_t a_row = p.lda == 0 ? kTileBytes : 2 * p.lda;
    const int64_t lines = Parts(p.lines, p.k / kStep);
    Ahead c_below = p.c_below;
    const int64_t c_lines = Parts(c_below.Lines(), p.k / kStep);
    float* const below = c + kTile * ldc;
    DELINK_TILE_FENCE();
    if (p.accumulate) {
      DELINK_TILE_LOAD(0, c, row);
      DELINK_TILE_LOAD(1, c + kTile, row);
      DELINK_TILE_LOAD(2, below, row);
      DELINK_TILE_LOAD(3, below + kTile, row);
    } else {
      DELINK_TILE_ZERO(0);
      DELINK_TILE_ZERO(1);
      DELINK_TILE_ZERO(2);
      DELINK_TILE_ZERO(3);
    }
    const auto* a = reinterpret_cast<const uint32_t*>(p.a);
    const auto* b = reinterpret_cast<const uint32_t*>(p.b);
#pragma GCC unroll 1
    for (int64_t l = 0; l < p.k; l += kStep) {
      DELINK_TILE_LOAD(4, a, a_row);
      DELINK_TILE_LOAD(6, b, kTileBytes);
      DELINK_TILE_LOAD(7, b + kTileWords, kTileBytes);
      p.ahead->Fetch(lines);
      c_below.Fetch(c_lines);
      DELINK_TILE_MULTIPLY(0, 4, 6);
      DELINK_TILE_LOAD(5, a + lower, a_row);
      DELINK_TILE_MULTIPLY(1, 4, 7);
      DELINK_TILE_MULTIPLY(2, 5, 6);
      DELINK_TILE_MULTIPLY(3, 5, 7);
      a += next;
      b += 2 * kTileWords;
    }
    DELINK_TILE_STORE(0, c, row);
    DELINK_TILE_STORE(1, c + kTile, row);
    DELINK_TILE_STORE(2, below, row);
    DELINK_TILE_STORE(3, below + kTile, row);
    DELINK_TILE_FENCE();
  }
};

}  // namespace

template <typename T>
void Matmul(Stream&, const MatmulArgs& s) {
  Product<AmxTiles, T>(s);
}

template <typename T>
void GroupedMatmul(Stream&, const GroupedMatmulArgs& s) {
  GroupedProduct<AmxTiles, T>(s);
}

template void Matmul<BFloat16>(Stream&, const MatmulArgs&);
template void GroupedMatmul<BFloat16>(Stream&, const GroupedMatmulArgs&);

}  // namespace delink::cpu::DELINK_SIMD
