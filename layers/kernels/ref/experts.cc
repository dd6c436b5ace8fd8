#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "layers/kernels/compose.h"
#include "layers/kernels/ref/ref.h"

namespace delink::ref {
namespace {

// The scores of a range of logits.
std::vector<double> ScoresOf(const std::vector<double>& logits, bool sigmoid) {
  std::vector<double> scores;
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double x : logits) {
    scores.push_back(sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x - most));
    sum += scores.back();
  }
  for (double& score : scores) score /= sigmoid ? 1 : sum;
  return scores;
}

template <typename S>
bool AllFinite(const S* x, int64_t n) {
  return std::all_of(x, x + n, [](S value) { return std::isfinite(value); });
}

template <typename S>
double LogSumExp(const S* x, int64_t n) {
  const double most = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

// The numbers of the `count` largest values, the largest first, of equal ones
// the lower.
std::vector<int64_t> Largest(const std::vector<double>& values, int64_t count) {
  std::vector<int64_t> numbers(values.size());
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  std::ranges::stable_sort(numbers, [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  numbers.resize(static_cast<size_t>(count));
  return numbers;
}

// The experts of a range that are chosen by `keys`. `values`: scores with
// biases.
std::vector<int64_t> Choose(const std::vector<double>& keys,
                            const std::vector<double>& values,
                            const RouterForm& form, int64_t count) {
  if (form.top_groups > 0) {
    const auto size = static_cast<int64_t>(values.size()) / form.groups;
    std::vector<double> of_groups;
    for (int64_t g = 0; g < form.groups; ++g) {
      std::vector<double> group(values.begin() + g * size,
                                values.begin() + (g + 1) * size);
      std::ranges::sort(group, std::greater());
      of_groups.push_back(group[0] + (size > 1 ? group[1] : 0));
    }
    std::vector<bool> open(of_groups.size(), false);
    for (const int64_t g : Largest(of_groups, form.top_groups)) {
      open[static_cast<size_t>(g)] = true;
    }
    std::vector<int64_t> chosen = Largest(keys, std::ssize(keys));
    std::erase_if(chosen, [&](int64_t e) {
      return !open[static_cast<size_t>(e / size)];
    });
    chosen.resize(static_cast<size_t>(count));
    return chosen;
  }
  return Largest(keys, count);
}

// One token's experts of one prototype.
template <typename Args>
struct RangeOf {
  RangeOf(const Args& s, int64_t n, int64_t prototype)
      : size(s.E / s.form.prototypes),
        each(s.k / s.form.prototypes),
        first(prototype * size),
        logits(n * s.E + first),
        choices(n * s.k + prototype * each) {}
  int64_t size, each;       // experts, and how many are chosen
  int64_t first;            // expert
  int64_t logits, choices;  // where the range's begin
};

}  // namespace

template <typename T>
void Route(Stream&, const RouteArgs& s) {
  using S = Wide<T>;
  const auto* const logits = static_cast<const S*>(s.logits);
  const auto* const bias = static_cast<const S*>(s.bias);
  for (int64_t i = 0; i < s.N * s.form.prototypes; ++i) {
    const RangeOf of(s, i / s.form.prototypes, i % s.form.prototypes);
    const S* const own = logits + of.logits;
    if (!AllFinite(own, of.size) ||
        (bias != nullptr && !AllFinite(bias + of.first, of.size))) {
      for (int64_t j = 0; j < of.each; ++j) {
        static_cast<S*>(s.gates)[of.choices + j] = static_cast<S>(NAN);
        s.ids[of.choices + j] = static_cast<int32_t>(of.first + j);
      }
      continue;
    }
    const std::vector<double> scores =
        ScoresOf({own, own + of.size}, s.form.sigmoid);
    std::vector<double> values = scores;
    for (int64_t e = 0; bias != nullptr && e < of.size; ++e) {
      values[static_cast<size_t>(e)] += bias[of.first + e];
    }
    const std::vector<int64_t> chosen = Choose(
        bias != nullptr ? values : std::vector<double>(own, own + of.size),
        values, s.form, of.each);
    double sum = 1e-20;
    for (const int64_t e : chosen) sum += scores[static_cast<size_t>(e)];
    for (int64_t j = 0; j < of.each; ++j) {
      const int64_t e = chosen[static_cast<size_t>(j)];
      const double gate = s.form.scale * scores[static_cast<size_t>(e)] /
                          (s.form.normalise ? sum : 1);
      static_cast<S*>(s.gates)[of.choices + j] = static_cast<S>(gate);
      s.ids[of.choices + j] = static_cast<int32_t>(of.first + e);
    }
  }
}

// With scores s, shares p = s / sum(s) and what is chosen, c:
//   a normalised gate       ds_c = scale (dgate_c - sum(dgate gate)) / sum(s_c)
//   shares                  ds = (dshare - sum(dshare p)) / sum(s)
//   softmax                 dlogit = s (ds - sum(ds s))
//   sigmoid                 dlogit = s (1 - s) ds
//   dz                      dlogit += dz 2 lse softmax(all logits)
template <typename T>
void RouteBackward(Stream&, const RouteBackwardArgs& s) {
  using S = Wide<T>;
  const auto* const logits = static_cast<const S*>(s.logits);
  const auto* const dgates = static_cast<const S*>(s.dgates);
  const auto* const dshares = static_cast<const S*>(s.dshares);
  auto* const dlogits = static_cast<S*>(s.dlogits);
  if (s.balance != nullptr) std::fill_n(s.balance, s.N, 0.0);
  for (int64_t i = 0; i < s.N * s.form.prototypes; ++i) {
    const int64_t n = i / s.form.prototypes;
    const bool counts = s.targets == nullptr || s.targets[n] >= 0;
    const RangeOf of(s, n, i % s.form.prototypes);
    const S* const own = logits + of.logits;
    const std::vector<double> scores =
        ScoresOf({own, own + of.size}, s.form.sigmoid);
    std::vector<double> ds(scores.size(), 0.0);
    const auto chosen = [&](int64_t j) {
      return static_cast<size_t>(s.ids[of.choices + j] - of.first);
    };
    double sum = 1e-20, common = 0;
    for (int64_t j = 0; j < of.each; ++j) sum += scores[chosen(j)];
    for (int64_t j = 0; s.form.normalise && j < of.each; ++j) {
      common += dgates[of.choices + j] * scores[chosen(j)] / sum;
    }
    for (int64_t j = 0; j < of.each; ++j) {
      ds[chosen(j)] += s.form.scale * (dgates[of.choices + j] - common) /
                       (s.form.normalise ? sum : 1);
    }
    if (dshares != nullptr && counts) {
      const S* const d = dshares + (s.first + n) / s.tokens * s.E + of.first;
      double all = 0, mean = 0;
      for (size_t e = 0; e < scores.size(); ++e) all += scores[e];
      for (size_t e = 0; e < scores.size(); ++e) mean += d[e] * scores[e] / all;
      if (s.balance != nullptr) s.balance[n] += mean;
      for (size_t e = 0; e < scores.size(); ++e) ds[e] += (d[e] - mean) / all;
    }
    double dot = 0;
    for (size_t e = 0; e < scores.size(); ++e) dot += ds[e] * scores[e];
    for (size_t e = 0; e < scores.size(); ++e) {
      const double by = s.form.sigmoid ? (1 - scores[e]) * ds[e] : ds[e] - dot;
      dlogits[of.logits + static_cast<int64_t>(e)] =
          static_cast<S>(scores[e] * by);
    }
  }
  for (int64_t n = 0; s.dz != 0 && n < s.N; ++n) {
    if (s.targets != nullptr && s.targets[n] < 0) continue;
    const S* const own = logits + n * s.E;
    const double lse = LogSumExp(own, s.E);
    for (int64_t e = 0; e < s.E; ++e) {
      S& d = dlogits[n * s.E + e];
      d = static_cast<S>(d + s.dz * 2 * lse * std::exp(own[e] - lse));
    }
  }
}

template <typename T>
void RouteStatistics(Stream&, const RouteStatisticsArgs& s) {
  using S = Wide<T>;
  std::fill_n(s.rows, 2 * s.N, 0.0);
  const int64_t size = s.E / s.form.prototypes;
  for (int64_t n = 0; n < s.N; ++n) {
    if (s.targets != nullptr && s.targets[n] < 0) continue;
    const S* const own = static_cast<const S*>(s.logits) + n * s.E;
    for (int64_t p = 0; p < s.form.prototypes; ++p) {
      const S* const first = own + p * size;
      const std::vector<double> scores =
          ScoresOf({first, first + size}, s.form.sigmoid);
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
      for (const double score : scores) {
        const double share = score / sum;
        if (share == 0) continue;
        s.rows[n] -=
            share * std::log(share) / static_cast<double>(s.form.prototypes);
      }
    }
    const double lse = LogSumExp(own, s.E);
    s.rows[s.N + n] = lse * lse;
  }
}

template <typename T>
void SumRows(Stream&, const SumRowsArgs& s) {
  for (int64_t r = 0; r < s.R; ++r) {
    s.sums[r] += std::accumulate(s.rows + r * s.N, s.rows + (r + 1) * s.N, 0.0);
  }
}

template <typename T>
void RecordLoads(Stream&, const RecordLoadsArgs& s) {
  for (int64_t e = 0; e < s.E; ++e) {
    const double load = s.loads[e];
    s.sums[e] += load;
    s.sums[s.E] += load;
    if (s.capacity > 0 && s.loads[e] > s.capacity) {
      s.sums[s.E + 1] += load - static_cast<double>(s.capacity);
    }
  }
}

template <typename T>
void CountPairs(Stream&, const CountPairsArgs& s) {
  std::fill_n(s.counts, s.G * (s.E + 1), 0.0);
  for (int64_t n = 0; n < s.N; ++n) {
    if (s.targets != nullptr && s.targets[n] < 0) continue;
    double* const counts = s.counts + (s.first + n) / s.tokens * (s.E + 1);
    for (int64_t j = 0; j < s.k; ++j) counts[s.ids[n * s.k + j]] += 1;
    counts[s.E] += 1;
  }
}

template <typename T>
void Balance(Stream&, const BalanceArgs& s) {
  for (int64_t i = 0; s.loads != nullptr && i < s.G * s.E; ++i) {
    static_cast<Wide<T>*>(s.dshares)[i] = static_cast<Wide<T>>(
        s.weight * static_cast<const Wide<T>*>(s.loads)[i % s.E]);
  }
  if (s.loads != nullptr) return;
  auto* const dshares = static_cast<Wide<T>*>(s.dshares);
  for (int64_t g = 0; g < s.G; ++g) {
    const double* const counts = s.counts + g * (s.E + 1);
    const double tokens = counts[s.E] * static_cast<double>(s.k);
    const double by =
        tokens > 0 ? s.weight * static_cast<double>(s.E) / tokens : 0;
    for (int64_t e = 0; e < s.E; ++e) {
      dshares[g * s.E + e] = static_cast<Wide<T>>(by * counts[e]);
    }
  }
}

template <typename T>
void NumberTokens(Stream&, const NumberTokensArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    const int64_t t = (s.first + n) % s.T;
    const int64_t place = s.places != nullptr ? s.places[t] : t;
    s.numbers[n] = static_cast<int32_t>((s.first + n) / s.T * s.R + place);
  }
}

template <typename T>
void OrderTokens(Stream&, const OrderTokensArgs& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    const int64_t to = s.numbers[n];
    std::copy_n(s.ids + n * s.k, s.k, s.to_ids + to * s.k);
    if (s.gates != nullptr) {
      std::copy_n(static_cast<const Wide<T>*>(s.gates) + n * s.k, s.k,
                  static_cast<Wide<T>*>(s.to_gates) + to * s.k);
    }
    if (s.targets != nullptr) s.to_targets[to] = s.targets[n];
  }
}

template <typename T>
void KeptIds(Stream&, const KeptIdsArgs& s) {
  for (int64_t pair = 0; pair < s.N * s.k; ++pair) {
    const int64_t n = pair / s.k,
                  token = s.numbers != nullptr ? s.numbers[n] : n;
    const bool has_row =
        s.rows == nullptr || s.rows[token * s.k + pair % s.k] >= 0;
    const int64_t id = s.ids[pair] - s.first;
    const bool kept = has_row && id >= 0 && id < s.E;
    s.kept[pair] = kept ? static_cast<int32_t>(id) : -1;
  }
}

template <typename T>
void AssignRows(Stream&, const AssignRowsArgs& s) {
  const auto* const gates = static_cast<const Wide<T>*>(s.gates);
  std::fill_n(s.rows, s.N * s.k, -1);
  int32_t row = 0;
  for (int64_t e = 0; e < s.E; ++e) {
    std::vector<int64_t> all, counted;  // pairs of the expert
    for (int64_t pair = 0; pair < s.N * s.k; ++pair) {
      if (s.ids[pair] != e) continue;
      all.push_back(pair);
      const bool counts = s.targets == nullptr || s.targets[pair / s.k] >= 0;
      if (counts) counted.push_back(pair);
    }
    s.loads[e] = static_cast<int32_t>(counted.size());
    std::vector<int64_t> dropped;
    if (s.capacity > 0 && std::ssize(counted) > s.capacity) {
      if (gates != nullptr) {
        const auto order = [&](int64_t pair) {
          return std::isnan(gates[pair]) ? HUGE_VAL : double{gates[pair]};
        };
        std::ranges::stable_sort(counted, std::greater(), order);
      }
      dropped.assign(counted.begin() + s.capacity, counted.end());
    }
    s.offsets[e] = row;
    for (const int64_t pair : all) {
      const bool drops = std::ranges::find(dropped, pair) != dropped.end();
      s.rows[pair] = drops ? -1 : row;
      if (!drops) s.pairs[row++] = static_cast<int32_t>(pair);
    }
  }
  s.offsets[s.E] = row;
}

template <typename T>
void AssignSlots(Stream&, const AssignSlotsArgs& s) {
  // What takes a slot: a token's `each` pairs together, or one.
  const int64_t each = s.once ? s.k : 1;
  std::fill_n(s.slots, s.N * (s.once ? s.ranks : s.k), -1);
  std::fill_n(s.pairs, s.ranges() * s.cap, -1);
  std::fill_n(s.to_ids, s.ranges() * s.cap * each, -1);
  for (int64_t range = 0; range < s.ranges(); ++range) {
    const int64_t part = range / s.ranks, rank = range % s.ranks;
    // The experts [from, to).
    const int64_t from = rank * s.each + part * s.width();
    const int64_t to = from + s.width();
    int64_t slot = range * s.cap;
    for (int64_t first = 0; first < s.N * s.k; first += each) {
      int64_t here = 0;
      for (int64_t i = first; i < first + each; ++i) {
        if (s.ids[i] < from || s.ids[i] >= to) continue;
        ++here;
        if (slot == (range + 1) * s.cap) continue;
        s.to_ids[slot * each + i - first] =
            static_cast<int32_t>(s.ids[i] - from);
      }
      if (here == 0) continue;
      if (slot == (range + 1) * s.cap) {
        if (s.lost != nullptr) *s.lost += static_cast<double>(here);
        continue;
      }
      const int64_t pair = s.once ? first / s.k * s.ranks + range : first;
      s.slots[pair] = static_cast<int32_t>(slot);
      s.pairs[slot++] = static_cast<int32_t>(pair);
    }
  }
}

template <typename T>
void GatherRows(Stream&, const GatherRowsArgs& s) {
  const int64_t rows = s.offsets != nullptr ? s.offsets[s.E] : s.cap;
  for (int64_t row = 0; row < rows; ++row) {
    T* const y = static_cast<T*>(s.y) + row * s.D;
    if (s.pairs[row] < 0) {
      std::fill_n(y, s.D, T(0.0F));
      continue;
    }
    const T* const x = static_cast<const T*>(s.x) + s.pairs[row] / s.k * s.D;
    std::copy_n(x, s.D, y);
  }
}

template <typename T>
void CombineRows(Stream&, const CombineRowsArgs& s) {
  const auto* const x = static_cast<const T*>(s.x);
  for (int64_t i = 0; i < s.N * s.D; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < s.k; ++j) {
      const int64_t row = s.rows[i / s.D * s.k + j];
      if (row >= 0) sum += x[row * s.D + i % s.D];
    }
    static_cast<T*>(s.y)[i] = static_cast<T>(sum);
  }
}

template <typename T>
void GroupedMatmul(Stream& stream, const GroupedMatmulArgs& s) {
  ForEachProduct<T, Wide<T>>(
      s, [&](const MatmulArgs& product) { Matmul<T>(stream, product); });
}

namespace {

// Of each row of expert e visit(row, e, gate of its pair).
template <typename T, typename Args, typename Visit>
void ForRows(const Args& s, const void* gates, const Visit& visit) {
  for (int64_t e = 0; e < s.E; ++e) {
    for (int64_t row = s.offsets[e]; row < s.offsets[e + 1]; ++row) {
      visit(row, e,
            gates == nullptr
                ? 1.0
                : double{static_cast<const Wide<T>*>(gates)[s.pairs[row]]});
    }
  }
}

}  // namespace

template <typename T>
void GroupedBias(Stream&, const GroupedBiasArgs& s) {
  ForRows<T>(s, s.gates, [&](int64_t row, int64_t e, double gate) {
    const T* const b = static_cast<const T*>(s.b) + e * s.D;
    T* const y = static_cast<T*>(s.y) + row * s.D;
    for (int64_t d = 0; d < s.D; ++d) {
      y[d] = static_cast<T>(double{y[d]} + gate * b[d]);
    }
  });
}

template <typename T>
void GroupedBiasGrad(Stream&, const GroupedBiasGradArgs& s) {
  Wide<T>* const db = static_cast<Wide<T>*>(s.db);
  std::vector<double> sums(static_cast<size_t>(s.E * s.D));
  if (s.accumulate) std::copy_n(db, sums.size(), sums.begin());
  ForRows<T>(s, s.gates, [&](int64_t row, int64_t e, double gate) {
    const T* const dy = static_cast<const T*>(s.dy) + row * s.D;
    for (int64_t d = 0; d < s.D; ++d) {
      sums[static_cast<size_t>(e * s.D + d)] += gate * dy[d];
    }
  });
  std::ranges::transform(sums, db,
                         [](double sum) { return static_cast<Wide<T>>(sum); });
}

template <typename T>
void GroupedBiasGates(Stream&, const GroupedBiasGatesArgs& s) {
  ForRows<T>(s, nullptr, [&](int64_t row, int64_t e, double) {
    const T* const b = static_cast<const T*>(s.b) + e * s.D;
    const T* const dy = static_cast<const T*>(s.dy) + row * s.D;
    double sum = 0;
    for (int64_t d = 0; d < s.D; ++d) sum += double{dy[d]} * b[d];
    static_cast<Wide<T>*>(s.dgates)[s.pairs[row]] = static_cast<Wide<T>>(sum);
  });
}

namespace {

GeluForm FormOf(ExpertActivation activation) {
  return activation == ExpertActivation::kGeluErf ? GeluForm::kErf
                                                  : GeluForm::kTanh;
}

}  // namespace

template <typename T>
void ExpertActForward(Stream&, const ExpertActForwardArgs& s) {
  const bool gated = s.activation == ExpertActivation::kSwiGlu;
  for (int64_t row = 0; row < s.offsets[s.E]; ++row) {
    const double by = static_cast<const Wide<T>*>(s.gates)[s.pairs[row]];
    const T* const x = static_cast<const T*>(s.x) + row * s.F * (gated ? 2 : 1);
    T* const y = static_cast<T*>(s.y) + row * s.F;
    for (int64_t f = 0; f < s.F; ++f) {
      const double g = x[f];
      const double act = gated ? g / (1 + std::exp(-g)) * x[s.F + f]
                               : Gelu(g, FormOf(s.activation));
      y[f] = static_cast<T>(by * act);
    }
  }
}

template <typename T>
void ExpertActBackward(Stream&, const ExpertActBackwardArgs& s) {
  const bool gated = s.activation == ExpertActivation::kSwiGlu;
  for (int64_t row = 0; row < s.offsets[s.E]; ++row) {
    const int64_t pair = s.pairs[row];
    const double by = static_cast<const Wide<T>*>(s.gates)[pair];
    const int64_t at = row * s.F * (gated ? 2 : 1);
    const T* const x = static_cast<const T*>(s.x) + at;
    T* const dx = static_cast<T*>(s.dx) + at;
    const T* const dy = static_cast<const T*>(s.dy) + row * s.F;
    double dgate = 0;
    for (int64_t f = 0; f < s.F; ++f) {
      const double g = x[f], d = dy[f];
      if (!gated) {
        dgate += d * Gelu(g, FormOf(s.activation));
        dx[f] =
            static_cast<T>(by * d * GeluDerivative(g, FormOf(s.activation)));
        continue;
      }
      const double up = x[s.F + f], sigmoid = 1 / (1 + std::exp(-g));
      dgate += d * g * sigmoid * up;
      dx[f] = static_cast<T>(by * d * up * sigmoid * (1 + g * (1 - sigmoid)));
      dx[s.F + f] = static_cast<T>(by * d * g * sigmoid);
    }
    static_cast<Wide<T>*>(s.dgates)[pair] = static_cast<Wide<T>>(dgate);
  }
}

#define DELINK_INSTANTIATE(T)                                              \
  template void Route<T>(Stream&, const RouteArgs&);                       \
  template void RouteBackward<T>(Stream&, const RouteBackwardArgs&);       \
  template void RouteStatistics<T>(Stream&, const RouteStatisticsArgs&);   \
  template void SumRows<T>(Stream&, const SumRowsArgs&);                   \
  template void RecordLoads<T>(Stream&, const RecordLoadsArgs&);           \
  template void CountPairs<T>(Stream&, const CountPairsArgs&);             \
  template void Balance<T>(Stream&, const BalanceArgs&);                   \
  template void NumberTokens<T>(Stream&, const NumberTokensArgs&);         \
  template void OrderTokens<T>(Stream&, const OrderTokensArgs&);           \
  template void KeptIds<T>(Stream&, const KeptIdsArgs&);                   \
  template void AssignRows<T>(Stream&, const AssignRowsArgs&);             \
  template void AssignSlots<T>(Stream&, const AssignSlotsArgs&);           \
  template void GatherRows<T>(Stream&, const GatherRowsArgs&);             \
  template void CombineRows<T>(Stream&, const CombineRowsArgs&);           \
  template void GroupedMatmul<T>(Stream&, const GroupedMatmulArgs&);       \
  template void GroupedBias<T>(Stream&, const GroupedBiasArgs&);           \
  template void GroupedBiasGrad<T>(Stream&, const GroupedBiasGradArgs&);   \
  template void GroupedBiasGates<T>(Stream&, const GroupedBiasGatesArgs&); \
  template void ExpertActForward<T>(Stream&, const ExpertActForwardArgs&); \
  template void ExpertActBackward<T>(Stream&, const ExpertActBackwardArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(double)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::ref
