#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// Exponentials are summed in f32 within a block and in double over blocks.
constexpr int64_t kBlock = 1024;

template <typename T>
float RowMax(const T* x, int64_t V) {
  Vec max = Set(-__builtin_inff());
  int64_t v = 0;
  for (; v + kWidth <= V; v += kWidth) max = Max(max, Load(x + v));
  float result = ReduceMax(max);
  for (; v < V; ++v) {
    const float logit = LoadOne(x + v);
    result = logit > result ? logit : result;
  }
  return result;
}

// sum exp(x - max); with kKeep x becomes the exponentials.
template <bool kKeep, typename T>
double SumExp(T* x, int64_t V, float max) {
  double total = 0.0;
  for (int64_t first = 0; first < V; first += kBlock) {
    const int64_t count = V - first < kBlock ? V - first : kBlock;
    T* block = x + first;
    Vec sum{};
    int64_t v = 0;
    for (; v + kWidth <= count; v += kWidth) {
      const Vec e = Exp(Load(block + v) - max);
      if (kKeep) Store(block + v, e);
      sum += e;
    }
    total += ReduceAdd(sum);
    if (v < count) {
      const Vec e = Exp(LoadPartial(block + v, count - v) - max);
      if (kKeep) StorePartial(block + v, e, count - v);
      for (int64_t lane = 0; lane < count - v; ++lane) total += e[lane];
    }
  }
  return total;
}

// softmax * scale - onehot(target), of a row that SumExp has left: f32 as
// exponentials, bf16 as it was, since what it kept would be rounded twice.
void Gradient(float* x, int64_t V, int32_t target, float, float inverse) {
  ForRow(V, [&](auto load, auto store)
                DELINK_LAMBDA { store(x, load(x) * inverse); });
  x[target] -= 1.0F;
}
void Gradient(BFloat16* x, int64_t V, int32_t target, float max,
              float inverse) {
  const Vec of_target = Exp(Set(LoadOne(x + target)) - max) * inverse - 1.0F;
  ForRow(V, [&](auto load, auto store)
                DELINK_LAMBDA { store(x, Exp(load(x) - max) * inverse); });
  StoreOne(x + target, of_target[0]);
}

template <typename T>
void CrossEntropyRow(const CrossEntropyArgs& s, int64_t n) {
  T* x = static_cast<T*>(s.logits) + n * s.ld;
  const int32_t target = s.targets[n];
  if (target == s.ignore_index) {
    s.row_loss[n] = 0.0;
    if (s.z_weight != 0) s.row_z[n] = 0.0;
    if (s.want_grad) std::memset(x, 0, s.V * sizeof(T));
    return;
  }
  const float max = RowMax(x, s.V);
  const double of_target = LoadOne(x + target);
  const double sum =
      s.want_grad ? SumExp<kIsF32<T>>(x, s.V, max) : SumExp<false>(x, s.V, max);
  const double log_sum = __builtin_log(sum);
  s.row_loss[n] = log_sum + (max - of_target);
  // The gradient of the z-loss is 2 z_weight lse softmax.
  double scale = 1.0;
  if (s.z_weight != 0) {
    const double lse = log_sum + max;
    s.row_z[n] = s.z_weight * lse * lse;
    scale += 2.0 * s.z_weight * lse;
  }
  if (!s.want_grad) return;
  Gradient(x, s.V, target, max, static_cast<float>(scale / sum));
}

}  // namespace

template <typename T>
void CrossEntropy(Stream&, const CrossEntropyArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.V > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) CrossEntropyRow<T>(s, n);
  SumLosses(s);
}

template void CrossEntropy<float>(Stream&, const CrossEntropyArgs&);
template void CrossEntropy<BFloat16>(Stream&, const CrossEntropyArgs&);

}  // namespace delink::cpu::DELINK_SIMD
