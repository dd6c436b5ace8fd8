// Private to framework/optim/cpu: elementwise work in chunks, over threads and
// with the widest instructions of the machine. The threads are those of the
// stream's pool, if it has one, else OpenMP's.
//
// A Body is a struct with `void operator()(int64_t begin, int64_t end) const`,
// always inlined, whose result for an element depends on that element alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "framework/device/cpu/pooled_stream.h"
#include "framework/optim/cpu/instructions.h"

namespace delink::cpu {

// Elements that one thread takes at a time, so that its streams fit in L2.
inline constexpr int64_t kElementsAtOnce = 16384;

template <typename Body>
void ByBaseline(const Body& body, int64_t begin, int64_t end) {
  body(begin, end);
}
template <typename Body>
DELINK_TARGET_AVX2 void ByAvx2(const Body& body, int64_t begin, int64_t end) {
  body(begin, end);
}
template <typename Body>
DELINK_TARGET_AVX512 void ByAvx512(const Body& body, int64_t begin,
                                   int64_t end) {
  body(begin, end);
}

template <typename Body>
void By(Instructions set, const Body& body, int64_t begin, int64_t end) {
  if constexpr (IsBuilt(Instructions::kAvx512)) {
    if (set == Instructions::kAvx512) return ByAvx512(body, begin, end);
  }
  if constexpr (IsBuilt(Instructions::kAvx2)) {
    if (set == Instructions::kAvx2) return ByAvx2(body, begin, end);
  }
  ByBaseline(body, begin, end);
}

// Calls work(i) for each i of [0, n); the calls must be independent. Uses the
// pool, or OpenMP's threads if it is null; only the calling thread unless
// `worth`.
template <typename Work>
void OverThreads(ThreadPool* pool, int64_t n, bool worth, const Work& work) {
  if (pool != nullptr && worth) return pool->ParallelFor(n, std::cref(work));
#pragma omp parallel for schedule(static) if (worth && pool == nullptr)
  for (int64_t i = 0; i < n; ++i) work(i);
}

// body over [0, n).
template <typename Body>
void RunElementsBy(Instructions set, ThreadPool* pool, const Body& body,
                   int64_t n) {
  const int64_t chunks = (n + kElementsAtOnce - 1) / kElementsAtOnce;
  OverThreads(pool, chunks, chunks > 1, [&](int64_t i) {
    const int64_t begin = i * kElementsAtOnce;
    By(set, body, begin, std::min(begin + kElementsAtOnce, n));
  });
}

// The same with the best instructions of the machine.
template <typename Body>
void RunElements(Stream& stream, const Body& body, int64_t n) {
  static const Instructions best = BestInstructions();
  RunElementsBy(best, PoolOf(stream), body, n);
}

}  // namespace delink::cpu
