// Routers of mixtures of experts (ref/experts.cc has the formulas).
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr float kLowest = -__builtin_inff();

// Calls visit(x, e, count) for vectors of the logits; of the last only the
// first `count` lanes are there.
template <typename Visit>
DELINK_INLINE void ForLogits(const float* logits, int64_t n,
                             const Visit& visit) {
  int64_t e = 0;
  for (; e + kWidth <= n; e += kWidth) visit(Load(logits + e), e, kWidth);
  if (e < n) visit(LoadPartial(logits + e, n - e), e, n - e);
}

// The largest logit, but not NaN.
DELINK_INLINE float Largest(const float* logits, int64_t n) {
  Vec most = Set(kLowest);
  int64_t e = 0;
  for (; e + kWidth <= n; e += kWidth) most = Max(Load(logits + e), most);
  float result = ReduceMax(most);
  for (; e < n; ++e) result = logits[e] > result ? logits[e] : result;
  return result;
}

bool AllFinite(const float* x, int64_t n) {
  int32_t others = 0;
  for (int64_t i = 0; i < n; ++i) others |= x[i] - x[i] == 0 ? 0 : 1;
  return others == 0;
}

// Scores of a range of logits, and their sum: of a softmax 1.
float ScoresOf(const float* logits, int64_t n, bool sigmoid, float* scores) {
  const float most = sigmoid ? 0 : Largest(logits, n);
  Vec sums{};
  ForLogits(logits, n, [&](Vec x, int64_t e, int64_t count) DELINK_LAMBDA {
    const Vec score = First(sigmoid ? Sigmoid(x) : Exp(x - most), count);
    StorePartial(scores + e, score, count);
    sums += score;
  });
  const float sum = ReduceAdd(sums);
  if (sigmoid) return sum;
  for (int64_t e = 0; e < n; ++e) scores[e] /= sum;
  return 1;
}

// Keeps the largest keys, the largest first, of equal ones the first that is
// added.
struct Best {
  int64_t most;
  float* keys;
  int32_t* ids;
  int64_t count = 0;

  void Add(float key, int32_t id) {
    if (count == most && !(key > keys[count - 1])) return;
    int64_t at = count < most ? count++ : count - 1;
    for (; at > 0 && key > keys[at - 1]; --at) {
      keys[at] = keys[at - 1];
      ids[at] = ids[at - 1];
    }
    keys[at] = key;
    ids[at] = id;
  }

  // Of ids 0 .. n - 1.
  void AddAll(const float* all, int64_t n) {
    int64_t e = 0;
    for (; e < n && count < most; ++e) Add(all[e], static_cast<int32_t>(e));
    for (; e < n; e += kWidth) {
      const int64_t there = n - e < kWidth ? n - e : kWidth;
      uint32_t larger =
          Greater(LoadPartial(all + e, there), Set(keys[count - 1]));
      for (larger &= 0xFFFFu >> (16 - there); larger != 0;
           larger &= larger - 1) {
        const int64_t id = e + __builtin_ctz(larger);
        Add(all[id], static_cast<int32_t>(id));
      }
    }
  }
};

// One token's experts of one prototype.
struct RangeOf {
  int64_t size, each;       // experts, and how many are chosen
  int64_t first;            // expert
  int64_t logits, choices;  // where the range's begin

  template <typename Args>
  RangeOf(const Args& s, int64_t i)
      : size(s.E / s.form.prototypes),
        each(s.k / s.form.prototypes),
        first(i % s.form.prototypes * size),
        logits(i * size),
        choices(i * each) {}
};

// The sum of a group's two largest values.
float ValueOf(const float* values, int64_t count) {
  float keys[2] = {kLowest, kLowest};
  int32_t ids[2];
  Best best{.most = 2, .keys = keys, .ids = ids};
  for (int64_t i = 0; i < count; ++i) best.Add(values[i], 0);
  return count > 1 ? keys[0] + keys[1] : keys[0];
}

// Marks in `open` the groups of which experts are chosen. keys [groups] and
// ids [top_groups] are scratch.
void OpenGroups(const RouterForm& form, const float* values, int64_t size,
                float* keys, int32_t* ids, float* open) {
  const int64_t each = size / form.groups;
  Best best{.most = form.top_groups, .keys = keys, .ids = ids};
  for (int64_t g = 0; g < form.groups; ++g) {
    best.Add(ValueOf(values + g * each, each), static_cast<int32_t>(g));
    open[g] = 0;
  }
  for (int64_t i = 0; i < best.count; ++i) open[ids[i]] = 1;
}

void RouteRange(const RouteArgs& s, const RangeOf& of, float* scratch) {
  const float* const logits = static_cast<const float*>(s.logits) + of.logits;
  float* const scores = scratch;
  float* const values = scores + of.size;
  float* const keys = values + of.size;  // [size]
  float* const open = keys + of.size;    // [size]
  int32_t* const ids = s.ids + of.choices;
  float* const gates = static_cast<float*>(s.gates) + of.choices;
  const float* const bias = s.bias != nullptr
                                ? static_cast<const float*>(s.bias) + of.first
                                : nullptr;
  if (!AllFinite(logits, of.size) ||
      (bias != nullptr && !AllFinite(bias, of.size))) {
    for (int64_t j = 0; j < of.each; ++j) {
      gates[j] = __builtin_nanf("");
      ids[j] = static_cast<int32_t>(of.first + j);
    }
    return;
  }
  ScoresOf(logits, of.size, s.form.sigmoid, scores);
  const bool grouped = s.form.top_groups > 0;
  for (int64_t e = 0; e < of.size && (grouped || bias != nullptr); ++e) {
    values[e] = scores[e] + (bias != nullptr ? bias[e] : 0.0F);
  }
  if (grouped) {
    auto* const groups = reinterpret_cast<int32_t*>(open + of.size);
    OpenGroups(s.form, values, of.size, keys, groups, open);
  }
  const int64_t group = of.size / s.form.groups;
  Best best{.most = of.each, .keys = keys, .ids = ids};
  const float* const by_key = bias != nullptr ? values : logits;
  if (!grouped) best.AddAll(by_key, of.size);
  for (int64_t e = 0; grouped && e < of.size; ++e) {
    if (open[e / group] != 0) best.Add(by_key[e], static_cast<int32_t>(e));
  }
  float sum = 1e-20F;
  for (int64_t j = 0; j < of.each; ++j) sum += scores[ids[j]];
  const float by =
      static_cast<float>(s.form.scale) / (s.form.normalise ? sum : 1.0F);
  for (int64_t j = 0; j < of.each; ++j) {
    gates[j] = by * scores[ids[j]];
    ids[j] += static_cast<int32_t>(of.first);
  }
}

// Returns the sum of share * its gradient.
float GradientOfRange(const RouteBackwardArgs& s, const RangeOf& of, int64_t n,
                      float* scratch) {
  const bool counts = s.targets == nullptr || s.targets[n] >= 0;
  const int32_t* const ids = s.ids + of.choices;
  const float* const dgates = static_cast<const float*>(s.dgates) + of.choices;
  float* const d = static_cast<float*>(s.dlogits) + of.logits;
  float* const scores = scratch;
  float* const ds = scores + of.size;
  const float all = ScoresOf(static_cast<const float*>(s.logits) + of.logits,
                             of.size, s.form.sigmoid, scores);
  for (int64_t e = 0; e < of.size; ++e) ds[e] = 0;
  float sum = 1e-20F, common = 0;
  for (int64_t j = 0; j < of.each; ++j) sum += scores[ids[j] - of.first];
  for (int64_t j = 0; s.form.normalise && j < of.each; ++j) {
    common += dgates[j] * scores[ids[j] - of.first] / sum;
  }
  const float by =
      static_cast<float>(s.form.scale) / (s.form.normalise ? sum : 1.0F);
  for (int64_t j = 0; j < of.each; ++j) {
    ds[ids[j] - of.first] += by * (dgates[j] - common);
  }
  float mean = 0;
  if (s.dshares != nullptr && counts) {
    const float* const shares = static_cast<const float*>(s.dshares) +
                                (s.first + n) / s.tokens * s.E + of.first;
    for (int64_t e = 0; e < of.size; ++e) mean += shares[e] * scores[e] / all;
    for (int64_t e = 0; e < of.size; ++e) ds[e] += (shares[e] - mean) / all;
  }
  float dot = 0;
  for (int64_t e = 0; e < of.size; ++e) dot += ds[e] * scores[e];
  for (int64_t e = 0; e < of.size; ++e) {
    d[e] =
        scores[e] * (s.form.sigmoid ? (1.0F - scores[e]) * ds[e] : ds[e] - dot);
  }
  return mean;
}

// Of logits x, with e = exp(x - most).
struct Exponentials {
  float most, sum;  // the largest x, the sum of e
  float below;      // the sum of e (most - x)

  double Log() const { return __builtin_log(double{sum}); }
};
Exponentials ExponentialsOf(const float* logits, int64_t n) {
  const float most = Largest(logits, n);
  Vec sums{}, below{};
  ForLogits(logits, n, [&](Vec x, int64_t, int64_t count) DELINK_LAMBDA {
    const Vec e = First(Exp(x - most), count);
    sums += e;
    below += e > Vec{} ? e * (most - x) : e;
  });
  return {most, ReduceAdd(sums), ReduceAdd(below)};
}

// The entropy of sigmoids' shares.
double EntropyOfSigmoids(const float* x, int64_t n, float* scores) {
  const double all = ScoresOf(x, n, true, scores);
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) {
    const double share = scores[e] / all;
    if (share > 0) sum -= share * __builtin_log(share);
  }
  return sum;
}

// Of the squared logarithm of the sum of all exponentials.
void AddGradientOfZ(const RouteBackwardArgs& s, int64_t n, float* scratch) {
  if (s.targets != nullptr && s.targets[n] < 0) return;
  const float* const x = static_cast<const float*>(s.logits) + n * s.E;
  float* const d = static_cast<float*>(s.dlogits) + n * s.E;
  ScoresOf(x, s.E, false, scratch);
  const Exponentials all = ExponentialsOf(x, s.E);
  const double lse = all.most + all.Log();
  const float by = static_cast<float>(2 * s.dz * lse);
  for (int64_t e = 0; e < s.E; ++e) d[e] += by * scratch[e];
}

}  // namespace

template <typename T>  // logits and gates are f32 for both
void Route(Stream&, const RouteArgs& s) {
  const int64_t ranges = s.N * s.form.prototypes;
#pragma omp parallel for schedule(static) if (s.N * s.E > kParallelFrom)
  for (int64_t i = 0; i < ranges; ++i) {
    const RangeOf of(s, i);
    RouteRange(s, of, ThreadFloats(5 * of.size));
  }
}

template <typename T>
void RouteBackward(Stream&, const RouteBackwardArgs& s) {
#pragma omp parallel for schedule(static) if (s.N * s.E > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    float* const scratch = ThreadFloats(2 * s.E);
    double balance = 0;
    for (int64_t p = 0; p < s.form.prototypes; ++p) {
      balance +=
          GradientOfRange(s, RangeOf(s, n * s.form.prototypes + p), n, scratch);
    }
    if (s.balance != nullptr) s.balance[n] = balance;
    if (s.dz != 0) AddGradientOfZ(s, n, scratch);
  }
}

template <typename T>
void RouteStatistics(Stream&, const RouteStatisticsArgs& s) {
  const int64_t ranges = s.form.prototypes, size = s.E / ranges;
#pragma omp parallel for schedule(static) if (s.N * s.E > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    s.rows[n] = s.rows[s.N + n] = 0;
    if (s.targets != nullptr && s.targets[n] < 0) continue;
    const float* const x = static_cast<const float*>(s.logits) + n * s.E;
    const Exponentials all = ExponentialsOf(x, s.E);
    const double log = all.Log(), lse = all.most + log;
    s.rows[s.N + n] = lse * lse;
    for (int64_t p = 0; p < ranges; ++p) {
      double entropy = 0;
      if (s.form.sigmoid) {
        entropy = EntropyOfSigmoids(x + p * size, size, ThreadFloats(size));
      } else {
        const Exponentials own =
            ranges == 1 ? all : ExponentialsOf(x + p * size, size);
        entropy = (ranges == 1 ? log : own.Log()) + own.below / own.sum;
      }
      s.rows[n] += entropy / static_cast<double>(ranges);
    }
  }
}

#define DELINK_INSTANTIATE(T)                                        \
  template void Route<T>(Stream&, const RouteArgs&);                 \
  template void RouteBackward<T>(Stream&, const RouteBackwardArgs&); \
  template void RouteStatistics<T>(Stream&, const RouteStatisticsArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cpu::DELINK_SIMD
