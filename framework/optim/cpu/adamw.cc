// AdamW on the CPU: bound by memory, so one pass over p, g, m, v.
#include <algorithm>
#include <cmath>

#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/instructions.h"
#include "framework/optim/slab_optimizer.h"

namespace delink::cpu {
namespace {

// Elements that one thread takes at a time: its four streams fit in L2.
constexpr int64_t kChunk = 16384;

template <typename T>
struct Coefficients {
  T scale, shrink;
  T beta1, rest1;
  T beta2, rest2;
  T root2;  // sqrt(1 - beta2^t)
  T eps;
  T step;  // -lr / (1 - beta1^t)
};

template <typename T>
Coefficients<T> CoefficientsOf(const AdamWArgs& a) {
  const UpdateControl& control = *a.control;
  const auto t = static_cast<double>(a.update);
  return {.scale = static_cast<T>(control.clip_factor),
          .shrink = static_cast<T>(1 - control.lr * a.decay),
          .beta1 = static_cast<T>(a.beta1),
          .rest1 = static_cast<T>(1 - a.beta1),
          .beta2 = static_cast<T>(a.beta2),
          .rest2 = static_cast<T>(1 - a.beta2),
          .root2 = static_cast<T>(std::sqrt(1 - std::pow(a.beta2, t))),
          .eps = static_cast<T>(a.eps),
          .step = static_cast<T>(-(control.lr / (1 - std::pow(a.beta1, t))))};
}

template <typename T>
using ChunkFn = void (*)(const Coefficients<T>&, T*, const T*, T*, T*, int64_t);

template <typename T>
[[gnu::always_inline]] inline void Body(const Coefficients<T>& c,
                                        T* __restrict p, const T* __restrict g,
                                        T* __restrict m, T* __restrict v,
                                        int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T gi = g[i] * c.scale;
    const T mi = m[i] * c.beta1 + gi * c.rest1;
    const T vi = v[i] * c.beta2 + c.rest2 * gi * gi;
    m[i] = mi;
    v[i] = vi;
    p[i] = p[i] * c.shrink + c.step * mi / (std::sqrt(vi) / c.root2 + c.eps);
  }
}

template <typename T>
void Baseline(const Coefficients<T>& c, T* p, const T* g, T* m, T* v,
              int64_t n) {
  Body(c, p, g, m, v, n);
}
template <typename T>
DELINK_TARGET_AVX2 void Avx2(const Coefficients<T>& c, T* p, const T* g, T* m,
                             T* v, int64_t n) {
  Body(c, p, g, m, v, n);
}
template <typename T>
DELINK_TARGET_AVX512 void Avx512(const Coefficients<T>& c, T* p, const T* g,
                                 T* m, T* v, int64_t n) {
  Body(c, p, g, m, v, n);
}

template <typename T>
ChunkFn<T> Choose(Instructions set) {
  switch (set) {
    case Instructions::kAvx512:
      return Avx512<T>;
    case Instructions::kAvx2:
      return Avx2<T>;
    case Instructions::kBaseline:
      break;
  }
  return Baseline<T>;
}

template <typename T>
void Run(ChunkFn<T> chunk, const AdamWArgs& a) {
  if (a.control->skip != 0) return;
  const Coefficients<T> c = CoefficientsOf<T>(a);
  T* const p = static_cast<T*>(a.p);
  const T* const g = static_cast<const T*>(a.g);
  T* const m = static_cast<T*>(a.m);
  T* const v = static_cast<T*>(a.v);
  const int64_t chunks = (a.n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t begin = i * kChunk;
    chunk(c, p + begin, g + begin, m + begin, v + begin,
          std::min(kChunk, a.n - begin));
  }
}

}  // namespace

template <typename T>
void AdamW(Stream&, const AdamWArgs& args) {
  static const ChunkFn<T> chunk = Choose<T>(BestInstructions());
  Run<T>(chunk, args);
}

template void AdamW<float>(Stream&, const AdamWArgs&);
template void AdamW<double>(Stream&, const AdamWArgs&);

bool AdamWF32With(int instructions, const AdamWArgs& args) {
  const auto set = static_cast<Instructions>(instructions);
  if (!Has(set)) return false;
  Run<float>(Choose<float>(set), args);
  return true;
}

}  // namespace delink::cpu
