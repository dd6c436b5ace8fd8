#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// Exponentials are summed in f32 within a block and in double over blocks.
constexpr int64_t kBlock = 1024;
// A shift is subtracted from all logits, which may exceed it by this much: sums
// of e^60 are as exact as sums of 1, and far from infinite.
constexpr float kRoom = 60.0F;

constexpr float kLog2E = 1.44269504F;

// exp(x) for x far below 88. If x is far below 0 the result is 0, or for a sum
// 2^-125, which is as good.
DELINK_INLINE Vec ExpOf(Vec x) {
  return Exp2Within(Max(Set(-127.0F), x * kLog2E));
}
DELINK_INLINE Vec ExpToAdd(Vec x) {
  return Exp2Normal(Max(Set(-125.0F), x * kLog2E));
}

template <typename T>
float Largest(const T* x, int64_t count) {
  Vec max = Set(-__builtin_inff());
  int64_t v = 0;
  for (; v + kWidth <= count; v += kWidth) max = Max(max, Load(x + v));
  float result = ReduceMax(max);
  for (; v < count; ++v) {
    const float logit = LoadOne(x + v);
    result = logit > result ? logit : result;
  }
  return result;
}

struct BlockSum {
  double sum;  // of exp(x - shift)
  float max;   // of x
};
template <typename T>
BlockSum SumExp(const T* x, int64_t count, float shift) {
  Vec sum{}, max = Set(-__builtin_inff());
  int64_t v = 0;
  for (; v + kWidth <= count; v += kWidth) {
    const Vec logit = Load(x + v);
    max = Max(max, logit);
    sum += ExpToAdd(logit - shift);
  }
  BlockSum result = {ReduceAdd(sum), ReduceMax(max)};
  if (v < count) {
    const Vec logit = LoadPartial(x + v, count - v);
    const Vec e = ExpToAdd(logit - shift);
    for (int64_t lane = 0; lane < count - v; ++lane) {
      result.sum += e[lane];
      result.max = logit[lane] > result.max ? logit[lane] : result.max;
    }
  }
  return result;
}

// The sum of exp(x - shift) over a row.
struct RowSum {
  double sum;
  float shift;
};

// In one pass: the shift is the largest logit of the first block, and becomes
// that of a later block only if this is far larger.
template <typename T>
RowSum SumRow(const T* x, int64_t V) {
  constexpr float kLowest = -1e38F;  // finite, since inf - inf is NaN
  float shift = Largest(x, V < kBlock ? V : kBlock);
  if (shift < kLowest) shift = kLowest;
  double total = 0.0;
  for (int64_t first = 0; first < V; first += kBlock) {
    const int64_t count = V - first < kBlock ? V - first : kBlock;
    BlockSum block = SumExp(x + first, count, shift);
    if (block.max > shift + kRoom) {
      total *= Exp(Set(shift - block.max))[0];
      shift = block.max;
      block = SumExp(x + first, count, shift);
    }
    total += block.sum;
  }
  return {total, shift};
}

// Writes the row's loss, and z. Returns the factor of the gradient's softmax.
template <typename Args>
double WriteLoss(const Args& s, int64_t n, double log_sum, double shift,
                 double of_target) {
  s.row_loss[n] = log_sum + (shift - of_target);
  if (s.z_weight == 0) return 1.0;
  const double lse = log_sum + shift;
  s.row_z[n] = s.z_weight * lse * lse;
  // The gradient of the z-loss is 2 z_weight lse softmax.
  return 1.0 + 2.0 * s.z_weight * lse;
}

template <typename T, typename Args>
void LeaveOutRow(const Args& s, int64_t n, T* x) {
  s.row_loss[n] = 0.0;
  if (s.z_weight != 0) s.row_z[n] = 0.0;
  if (s.want_grad) std::memset(x, 0, s.V * sizeof(T));
}

// x becomes softmax * scale, less 1 at `target` if that is in [0, V). The
// exponentials are computed again: bf16 could not store them, and storing them
// costs as much as computing them.
template <typename T>
void GradientOfRow(T* x, int64_t V, float shift, float inverse,
                   int64_t target) {
  const auto probability = [=](Vec logit) DELINK_LAMBDA {
    return ExpOf(logit - shift) * inverse;
  };
  const bool here = target >= 0 && target < V;
  const float of_target = here ? LoadOne(x + target) : 0.0F;
  ForRow(V, [&](auto load, auto store)
                DELINK_LAMBDA { store(x, probability(load(x))); });
  if (here) StoreOne(x + target, probability(Set(of_target))[0] - 1.0F);
}

template <typename T>
void CrossEntropyRow(const CrossEntropyArgs& s, int64_t n) {
  T* x = static_cast<T*>(s.logits) + n * s.ld;
  const int32_t target = s.targets[n];
  if (target == s.ignore_index) return LeaveOutRow(s, n, x);
  const RowSum row = SumRow(x, s.V);
  const double scale =
      WriteLoss(s, n, __builtin_log(row.sum), row.shift, LoadOne(x + target));
  if (!s.want_grad) return;
  GradientOfRow(x, s.V, row.shift, static_cast<float>(scale / row.sum), target);
}

template <typename T>
void VocabSumsRow(const VocabSumsArgs& s, int64_t n) {
  const T* x = static_cast<const T*>(s.logits) + n * s.ld;
  const int64_t target = s.targets[n] - s.first_token;
  const float max = static_cast<float>(s.max[n]);
  double sum = 0.0, of_target = 0.0;
  if (s.targets[n] != s.ignore_index) {
    for (int64_t first = 0; first < s.V; first += kBlock) {
      const int64_t rest = s.V - first;
      sum += SumExp(x + first, rest < kBlock ? rest : kBlock, max).sum;
    }
    if (target >= 0 && target < s.V) of_target = LoadOne(x + target);
  }
  s.sums[n] = sum;
  s.sums[s.N + n] = of_target;
}

template <typename T>
void VocabCrossEntropyRow(const VocabCrossEntropyArgs& s, int64_t n) {
  T* x = static_cast<T*>(s.logits) + n * s.ld;
  if (s.targets[n] == s.ignore_index) return LeaveOutRow(s, n, x);
  const double sum = s.sums[n], max = s.max[n];
  const double scale =
      WriteLoss(s, n, __builtin_log(sum), max, s.sums[s.N + n]);
  if (!s.want_grad) return;
  GradientOfRow(x, s.V, static_cast<float>(max),
                static_cast<float>(scale / sum), s.targets[n] - s.first_token);
}

}  // namespace

template <typename T>
void CrossEntropy(Stream&, const CrossEntropyArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.V > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) CrossEntropyRow<T>(s, n);
  SumLosses(s);
}

template <typename T>
void VocabMax(Stream&, const VocabMaxArgs& s) {
  constexpr float kLowest = -__FLT_MAX__;
#pragma omp parallel for schedule(static) if (s.N * s.V > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const float max = Largest(static_cast<const T*>(s.logits) + n * s.ld, s.V);
    s.max[n] = static_cast<double>(max < kLowest ? kLowest : max);
  }
}

template <typename T>
void VocabSums(Stream&, const VocabSumsArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.V > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) VocabSumsRow<T>(s, n);
}

template <typename T>
void VocabCrossEntropy(Stream&, const VocabCrossEntropyArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.V > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) VocabCrossEntropyRow<T>(s, n);
  SumLosses(s);
}

#define DELINK_INSTANTIATE(T)                                      \
  template void CrossEntropy<T>(Stream&, const CrossEntropyArgs&); \
  template void VocabMax<T>(Stream&, const VocabMaxArgs&);         \
  template void VocabSums<T>(Stream&, const VocabSumsArgs&);       \
  template void VocabCrossEntropy<T>(Stream&, const VocabCrossEntropyArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cpu::DELINK_SIMD
