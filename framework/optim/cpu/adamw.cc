// AdamW on the CPU: bound by memory, so one pass over p, g, m, v and w.
#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "framework/base/check.h"
#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/instructions.h"
#include "framework/optim/slab_optimizer.h"
#include "framework/tensor/bfloat16.h"

namespace delink::cpu {
namespace {

// Elements that one thread takes at a time: its streams fit in L2.
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
using ChunkFn = void (*)(const Coefficients<T>&, T*, const T*, T*, T*,
                         BFloat16*, int64_t);

// BFloat16(x).bits, chosen between 32-bit numbers, which is what compilers can
// do for many elements at a time under every instruction set.
[[gnu::always_inline]] inline uint16_t RoundedBits(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t number = u + 0x7FFF + ((u >> 16) & 1);
  const uint32_t quiet = u | 0x400000;
  return static_cast<uint16_t>((x == x ? number : quiet) >> 16);
}

// W is BFloat16, or void where there are no rounded weights to write.
template <typename T, typename W>
[[gnu::always_inline]] inline void Body(const Coefficients<T>& c,
                                        T* __restrict p, const T* __restrict g,
                                        T* __restrict m, T* __restrict v,
                                        BFloat16* __restrict w, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T gi = g[i] * c.scale;
    const T mi = m[i] * c.beta1 + gi * c.rest1;
    const T vi = v[i] * c.beta2 + c.rest2 * gi * gi;
    m[i] = mi;
    v[i] = vi;
    const T pi =
        p[i] * c.shrink + c.step * mi / (std::sqrt(vi) / c.root2 + c.eps);
    p[i] = pi;
    if constexpr (!std::is_void_v<W>) w[i].bits = RoundedBits(pi);
  }
}

template <typename T, typename W>
void Baseline(const Coefficients<T>& c, T* p, const T* g, T* m, T* v,
              BFloat16* w, int64_t n) {
  Body<T, W>(c, p, g, m, v, w, n);
}
template <typename T, typename W>
DELINK_TARGET_AVX2 void Avx2(const Coefficients<T>& c, T* p, const T* g, T* m,
                             T* v, BFloat16* w, int64_t n) {
  Body<T, W>(c, p, g, m, v, w, n);
}
template <typename T, typename W>
DELINK_TARGET_AVX512 void Avx512(const Coefficients<T>& c, T* p, const T* g,
                                 T* m, T* v, BFloat16* w, int64_t n) {
  Body<T, W>(c, p, g, m, v, w, n);
}

template <typename T, typename W>
ChunkFn<T> Choose(Instructions set) {
  switch (set) {
    case Instructions::kAvx512:
      return Avx512<T, W>;
    case Instructions::kAvx2:
      return Avx2<T, W>;
    case Instructions::kBaseline:
      break;
  }
  return Baseline<T, W>;
}

template <typename T>
ChunkFn<T> ChooseFor(Instructions set, const AdamWArgs& a) {
  if constexpr (std::is_same_v<T, float>) {
    if (a.w != nullptr) return Choose<T, BFloat16>(set);
  }
  DELINK_CHECK(a.w == nullptr) << "rounded weights of f64 parameters";
  return Choose<T, void>(set);
}

template <typename T>
void Run(Instructions set, const AdamWArgs& a) {
  if (a.control->skip != 0) return;
  const ChunkFn<T> chunk = ChooseFor<T>(set, a);
  const Coefficients<T> c = CoefficientsOf<T>(a);
  T* const p = static_cast<T*>(a.p);
  const T* const g = static_cast<const T*>(a.g);
  T* const m = static_cast<T*>(a.m);
  T* const v = static_cast<T*>(a.v);
  BFloat16* const w = static_cast<BFloat16*>(a.w);
  const int64_t chunks = (a.n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t begin = i * kChunk;
    chunk(c, p + begin, g + begin, m + begin, v + begin,
          w == nullptr ? nullptr : w + begin, std::min(kChunk, a.n - begin));
  }
}

}  // namespace

template <typename T>
void AdamW(Stream&, const AdamWArgs& args) {
  static const Instructions best = BestInstructions();
  Run<T>(best, args);
}

template void AdamW<float>(Stream&, const AdamWArgs&);
template void AdamW<double>(Stream&, const AdamWArgs&);

bool AdamWF32With(int instructions, const AdamWArgs& args) {
  const auto set = static_cast<Instructions>(instructions);
  if (!Has(set)) return false;
  Run<float>(set, args);
  return true;
}

}  // namespace delink::cpu
