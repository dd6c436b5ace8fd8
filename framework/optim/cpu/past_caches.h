// Private to framework/optim/cpu: stores that leave the caches to others. A
// line that is written whole need not be read before, nor does it drive out
// what is still to be read.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace delink::cpu {

// From so many elements on: all planes of fewer may still be in the caches when
// they are next read.
inline constexpr int64_t kPastCachesFrom = int64_t{1} << 20;

// Copies bytes: whole lines past the caches, what is less at either end as
// memcpy does. PastCachesDone, by the same thread, comes before others may
// read them.
[[gnu::always_inline]] inline void CopyPastCaches(void* to, const void* from,
                                                  int64_t bytes) {
#if defined(__x86_64__)
  constexpr int64_t kLine = 64, kAtOnce = 16;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out));
  int64_t head = -address & (kLine - 1);
  if (head > bytes) head = bytes;
  std::memcpy(out, in, static_cast<size_t>(head));
  const int64_t end = bytes - ((bytes - head) & (kLine - 1));
  for (int64_t i = head; i < end; i += kAtOnce) {
    __m128i piece;
    std::memcpy(&piece, in + i, sizeof(piece));
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i), piece);
  }
  std::memcpy(out + end, in + end, static_cast<size_t>(bytes - end));
#else
  std::memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

inline void PastCachesDone() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace delink::cpu
