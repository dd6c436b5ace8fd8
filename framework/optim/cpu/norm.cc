// Sums of squares in double over fixed lanes, and the norm from them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/elementwise.h"
#include "framework/optim/find_kernels.h"
#include "framework/optim/slab_optimizer.h"
#include "framework/tensor/master.h"

namespace delink::cpu {
namespace {

// Element i of a block is always added to lane i mod 16, whatever the vector
// width: two vectors of eight doubles.
constexpr int64_t kVector = 8;
constexpr int64_t kLanes = 2 * kVector;
using Double8 = double __attribute__((vector_size(8 * sizeof(double))));
using Float8 = float __attribute__((vector_size(8 * sizeof(float))));

// The sum of squares of elements [begin, begin + n).
using SumFn = double (*)(const SumSquaresArgs&, int64_t begin, int64_t n);

[[gnu::always_inline]] inline void AddSquares(const float* x, Double8& sum) {
  Float8 narrow;
  std::memcpy(&narrow, x, sizeof(narrow));
  const Double8 wide = __builtin_convertvector(narrow, Double8);
  sum += wide * wide;
}
[[gnu::always_inline]] inline void AddSquares(const double* x, Double8& sum) {
  Double8 wide;
  std::memcpy(&wide, x, sizeof(wide));
  sum += wide * wide;
}

// n is a multiple of kLanes, except in the last call.
template <typename T>
[[gnu::always_inline]] inline void AddAll(const T* x, int64_t n, Double8& low,
                                          Double8& high) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    AddSquares(x + i, low);
    AddSquares(x + i + kVector, high);
  }
  if (i < n) {
    T rest[kLanes] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(T));
    AddSquares(rest, low);
    AddSquares(rest + kVector, high);
  }
}

// Loads values to be squared that are not stored as T.
template <typename T>
[[gnu::always_inline]] inline void LoadTile(const SumSquaresArgs& a,
                                            int64_t begin, int64_t n, T* tile) {
  if (a.x != nullptr) {
    std::memcpy(tile, static_cast<const T*>(a.x) + begin,
                static_cast<size_t>(n) * sizeof(T));
  } else if constexpr (std::is_same_v<T, float>) {
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t low = a.low == nullptr ? 0 : a.low[begin + i];
      tile[i] = SplitMaster{a.w[begin + i], low}.Value();
    }
  }
  if (a.clip == nullptr) return;
  const GradientScale<T> clip(*a.clip);
  for (int64_t i = 0; i < n; ++i) tile[i] = clip(tile[i]);
}

template <typename T>
[[gnu::always_inline]] inline double Body(const SumSquaresArgs& a,
                                          int64_t begin, int64_t n) {
  static_assert(kGradientTile % kLanes == 0);
  Double8 low = {}, high = {};
  if (a.x != nullptr && a.clip == nullptr) {
    AddAll(static_cast<const T*>(a.x) + begin, n, low, high);
  } else {
    T tile[kGradientTile];
    for (int64_t at = 0; at < n; at += kGradientTile) {
      const int64_t count = n - at < kGradientTile ? n - at : kGradientTile;
      LoadTile(a, begin + at, count, tile);
      AddAll(tile, count, low, high);
    }
  }
  const Double8 lanes = low + high;
  double sum = 0;
  for (int64_t lane = 0; lane < kVector; ++lane) sum += lanes[lane];
  return sum;
}

template <typename T>
double Baseline(const SumSquaresArgs& a, int64_t begin, int64_t n) {
  return Body<T>(a, begin, n);
}
template <typename T>
DELINK_TARGET_AVX2 double Avx2(const SumSquaresArgs& a, int64_t begin,
                               int64_t n) {
  return Body<T>(a, begin, n);
}
template <typename T>
DELINK_TARGET_AVX512 double Avx512(const SumSquaresArgs& a, int64_t begin,
                                   int64_t n) {
  return Body<T>(a, begin, n);
}

template <typename T>
SumFn Choose(Instructions set) {
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

void Run(SumFn sum, ThreadPool* pool, const SumSquaresArgs& a) {
  const int64_t blocks = (a.n + a.block - 1) / a.block;
  OverThreads(pool, blocks, a.n > 32768, [&](int64_t i) {
    const int64_t begin = i * a.block;
    a.sums[i] = sum(a, begin, std::min(a.block, a.n - begin));
  });
}

}  // namespace

template <typename T>
void SumSquares(Stream& stream, const SumSquaresArgs& args) {
  static const SumFn sum = Choose<T>(BestInstructions());
  Run(sum, PoolOf(stream), args);
}

DELINK_OPTIM_INSTANTIATE(SumSquares, SumSquaresArgs);

bool SumSquaresF32With(int instructions, const SumSquaresArgs& args) {
  const auto set = static_cast<Instructions>(instructions);
  if (!Has(set)) return false;
  Run(Choose<float>(set), nullptr, args);
  return true;
}

template <typename T>  // all sums are f64
void FinishNorm(Stream&, const FinishNormArgs& a) {
  double squares = 0;
  for (int64_t i = 0; i < a.n; ++i) squares += a.sums[i];
  UpdateControl& control = *a.control;
  control.loss_sum = a.sums[a.n];
  control.tokens = a.sums[a.n + 1];
  control.lost = a.sums[a.n + 2];
  control.norm = std::sqrt(squares) / control.tokens;
  const bool too_large =
      control.skip_above > 0 && control.norm > control.skip_above;
  control.skip = !std::isfinite(control.loss_sum) ||
                 !std::isfinite(control.norm) || !(control.tokens > 0) ||
                 control.lost > 0 || too_large;
  double factor = 1;
  if (control.clip > 0) {
    // As torch.nn.utils.clip_grad_norm_.
    factor = std::min(1.0, control.clip / (control.norm + 1e-6));
  }
  control.clip_factor = control.skip != 0 ? 0 : factor / control.tokens;
}

template <typename T>
void SumsTail(Stream&, const SumsTailArgs& a) {
  a.tail[0] = *a.loss_sum;
  a.tail[1] = static_cast<double>(*a.tokens);
  a.tail[2] = *a.lost;
  a.tail[3] = a.votes;
}

DELINK_OPTIM_INSTANTIATE(FinishNorm, FinishNormArgs);
DELINK_OPTIM_INSTANTIATE(SumsTail, SumsTailArgs);

}  // namespace delink::cpu
