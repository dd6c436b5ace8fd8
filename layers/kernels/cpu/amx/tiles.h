// AMX's tiles. They are the processor's or, with DELINK_EMULATED_TILES, a model
// of them after Intel's manual (TDPBF16PS), for processors without AMX. Tiles
// are named by digits, as in instructions:
//   DELINK_TILE_ZERO(t)              all 0
//   DELINK_TILE_LOAD(t, p, stride)   16 rows of 64 bytes, `stride` bytes apart
//   DELINK_TILE_STORE(t, p, stride)
//   DELINK_TILE_MULTIPLY(c, a, b)    c[i][j] += a[i][:] . b[:][j], in f32
//
// In a product a has 32 bf16 a row, and b the pairs (b[2 l][j], b[2 l + 1][j])
// at [l][j].
#pragma once

#include <cstdint>
#include <cstring>

#if !defined(DELINK_EMULATED_TILES)
#include <immintrin.h>

#define DELINK_TILE_ZERO(t) _tile_zero(t)
#define DELINK_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define DELINK_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define DELINK_TILE_MULTIPLY(c, a, b) _tile_dpbf16ps(c, a, b)
// Needed because the compiler does not know the memory that tile loads and
// stores access.
#define DELINK_TILE_FENCE() asm volatile("" ::: "memory")
#else
#define DELINK_TILE_ZERO(t) std::memset(&t_tiles[t], 0, sizeof(Tile))
#define DELINK_TILE_LOAD(t, p, stride) LoadTile(&t_tiles[t], p, stride)
#define DELINK_TILE_STORE(t, p, stride) StoreTile(t_tiles[t], p, stride)
#define DELINK_TILE_MULTIPLY(c, a, b) \
  MultiplyTiles(&t_tiles[c], t_tiles[a], t_tiles[b])
#define DELINK_TILE_FENCE() static_cast<void>(0)
#endif

namespace delink::cpu::DELINK_SIMD {

#if !defined(DELINK_EMULATED_TILES)

// While it lives, there are eight tiles of 16 rows of 64 bytes.
class Tiles {
 public:
  Tiles() { _tile_loadconfig(&kConfig); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette, first_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static constexpr Config kConfig = {1,
                                     0,
                                     {},
                                     {64, 64, 64, 64, 64, 64, 64, 64},
                                     {16, 16, 16, 16, 16, 16, 16, 16}};
};

#else

struct Tiles {
  ~Tiles() {}  // avoids a warning about unused variables
};

struct Tile {
  uint32_t words[16][16];
};
static thread_local Tile t_tiles[8];

static inline void LoadTile(Tile* tile, const void* p, int64_t stride) {
  for (int64_t i = 0; i < 16; ++i) {
    std::memcpy(tile->words[i], static_cast<const char*>(p) + i * stride, 64);
  }
}

static inline void StoreTile(const Tile& tile, void* p, int64_t stride) {
  for (int64_t i = 0; i < 16; ++i) {
    std::memcpy(static_cast<char*>(p) + i * stride, tile.words[i], 64);
  }
}

static inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Inputs and results below 2^-126 become 0; a multiply-add is rounded once.
static inline float Flushed(float x) {
  return __builtin_fabsf(x) < 0x1p-126F ? 0 * x : x;
}
static inline float AddProduct(uint32_t a, uint32_t b, float sum) {
  const float x = Flushed(FloatOf(a)), y = Flushed(FloatOf(b));
  return Flushed(__builtin_fmaf(x, y, sum));
}

static inline void MultiplyTiles(Tile* c, const Tile& a, const Tile& b) {
  constexpr uint32_t kUpper = 0xFFFF0000;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      float even = 0, odd = 0;
      for (int64_t l = 0; l < 16; ++l) {
        const uint32_t x = a.words[i][l], y = b.words[l][j];
        even = AddProduct(x << 16, y << 16, even);
        odd = AddProduct(x & kUpper, y & kUpper, odd);
      }
      const float sum = Flushed(FloatOf(c->words[i][j]) + Flushed(even + odd));
      std::memcpy(&c->words[i][j], &sum, sizeof(sum));
    }
  }
}

#endif

}  // namespace delink::cpu::DELINK_SIMD
