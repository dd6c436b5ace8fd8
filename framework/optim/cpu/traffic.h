// Private to framework/optim/cpu: prefetches and non-temporal stores for the
// planes of an update. A non-temporal store writes a whole line without reading
// it first, and does not evict from the caches what is still to be read.
#pragma once

#include <cstdint>
#include <cstring>

#include "framework/optim/cpu/instructions.h"

namespace delink::cpu {

// How planes are read and written.
enum class Traffic {
  kCaches,      // plain loads and stores: planes may still be in the caches
  kMemory,      // with prefetches
  kPastCaches,  // with prefetches and non-temporal stores
};

// Updates of fewer elements use kCaches: their planes may still be in the
// caches when they are next read.
inline constexpr int64_t kInMemoryFrom = int64_t{1} << 20;

// How many elements ahead planes are prefetched, and how many at a time. The
// hardware prefetcher stops at the end of a page, and there are many planes.
inline constexpr int64_t kAhead = 512;
inline constexpr int64_t kAskedAtOnce = 64;

// Whether non-temporal stores are faster, by measurement (docs/benchmarks.md),
// for an update that reads most of what it writes, so that they save no read.
// On Intel processors a line on its way to memory occupies one of a core's few
// fill buffers and delays the stores behind it.
inline bool StoresPastCachesPay() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

// Prefetches elements of `width` bytes.
[[gnu::always_inline]] inline void AskFor(const void* plane, int64_t at,
                                          int64_t elements, int64_t width) {
  const auto* const from = static_cast<const char*>(plane) + at * width;
  for (int64_t i = 0; i < elements * width; i += 64) {
    __builtin_prefetch(from + i);
  }
}

#if defined(__x86_64__)
// Copies whole lines: `to` and `bytes` are multiples of 64.
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

// Copies bytes: whole lines with non-temporal stores, the rest at either end
// with memcpy. The same thread must call PastCachesDone before others read the
// bytes.
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
