// Private to framework/optim/cpu: how planes of an update come and go, asked
// for ahead, and by stores that leave the caches to others. A line that is
// written whole need not be read before, nor does it drive out what is still to
// be read.
#pragma once

#include <cstdint>
#include <cstring>

#include "framework/optim/cpu/instructions.h"

namespace delink::cpu {

// How planes come and go.
enum class Traffic {
  kCaches,      // where they may still be in the caches: as they are asked for
  kMemory,      // asked for ahead
  kPastCaches,  // and stored past the caches
};

// From so many elements on: all planes of fewer may still be in the caches when
// they are next read.
inline constexpr int64_t kInMemoryFrom = int64_t{1} << 20;

// How many elements ahead planes are asked for, and how many at a time: what
// the machine foresees by itself ends with a page, and there are many planes.
inline constexpr int64_t kAhead = 512;
inline constexpr int64_t kAskedAtOnce = 64;

// Whether they do where an update reads most of what it writes, which saves a
// line no reading: by measurement (docs/benchmarks.md). On Intel's processors a
// line on its way to memory holds one of a core's few buffers for lines that
// come, and the stores behind it back.
inline bool StoresPastCachesPay() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

// Of elements of `width` bytes.
[[gnu::always_inline]] inline void AskFor(const void* plane, int64_t at,
                                          int64_t elements, int64_t width) {
  const auto* const from = static_cast<const char*>(plane) + at * width;
  for (int64_t i = 0; i < elements * width; i += 64) {
    __builtin_prefetch(from + i);
  }
}

#if defined(__x86_64__)
// Of whole lines: `to` and `bytes` are multiples of 64.
DELINK_TARGET_AVX512 inline void CopyLinesByAvx512(void* to, const char* from,
                                                   int64_t bytes) {
  auto* out = static_cast<__m512i*>(to);
  for (int64_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(out++, _mm512_loadu_si512(from + i));
  }
}
inline void CopyLines(void* to, const char* from, int64_t bytes) {
  auto* out = static_cast<__m128i*>(to);
  for (int64_t i = 0; i < bytes; i += 16) {
    __m128i piece;
    std::memcpy(&piece, from + i, sizeof(piece));
    _mm_stream_si128(out++, piece);
  }
}

// Copies bytes: whole lines past the caches, what is less at either end as
// memcpy does. PastCachesDone, by the same thread, comes before others may
// read them.
inline void CopyPastCaches(Instructions set, void* to, const void* from,
                           int64_t bytes) {
  constexpr int64_t kLine = 64;
  auto* const out = static_cast<char*>(to);
  const auto* const in = static_cast<const char*>(from);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out));
  const int64_t before = -address & (kLine - 1);
  const int64_t head = before < bytes ? before : bytes;
  const int64_t lines = (bytes - head) & -kLine;
  const int64_t tail = bytes - head - lines;
  if (head > 0) std::memcpy(out, in, static_cast<size_t>(head));
  if (set == Instructions::kAvx512) {
    CopyLinesByAvx512(out + head, in + head, lines);
  } else {
    CopyLines(out + head, in + head, lines);
  }
  if (tail > 0) {
    std::memcpy(out + bytes - tail, in + bytes - tail,
                static_cast<size_t>(tail));
  }
}

inline void PastCachesDone() { _mm_sfence(); }
#else
inline void CopyPastCaches(Instructions, void* to, const void* from,
                           int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

inline void PastCachesDone() {}
#endif

}  // namespace delink::cpu
