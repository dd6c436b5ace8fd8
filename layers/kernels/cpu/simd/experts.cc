// Mixtures of experts (ref/experts.cc has the formulas).
#include "layers/kernels/cpu/helpers.h"
#include "layers/kernels/cpu/simd/math.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kColumnBlock = 64;

}  // namespace

template <typename T>
void SumRows(Stream&, const SumRowsArgs& s) {
  for (int64_t r = 0; r < s.R; ++r) {
    double sum = 0;
    for (int64_t n = 0; n < s.N; ++n) sum += s.rows[r * s.N + n];
    s.sums[r] += sum;
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
  CountGroups(s);
}

template <typename T>
void Balance(Stream&, const BalanceArgs& s) {
  for (int64_t i = 0; s.loads != nullptr && i < s.G * s.E; ++i) {
    static_cast<float*>(s.dshares)[i] = static_cast<float>(
        s.weight * static_cast<const float*>(s.loads)[i % s.E]);
  }
  if (s.loads != nullptr) return;
  for (int64_t g = 0; g < s.G; ++g) {
    const double* const counts = s.counts + g * (s.E + 1);
    const double tokens = counts[s.E] * static_cast<double>(s.k);
    const double by =
        tokens > 0 ? s.weight * static_cast<double>(s.E) / tokens : 0;
    float* const dshares = static_cast<float*>(s.dshares) + g * s.E;
    for (int64_t e = 0; e < s.E; ++e) {
      dshares[e] = static_cast<float>(by * counts[e]);
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
  const auto move = [&](auto* to, const auto* from, int64_t n, int64_t count) {
    std::memcpy(to + s.numbers[n] * count, from + n * count,
                count * sizeof(*to));
  };
  for (int64_t n = 0; n < s.N; ++n) {
    move(s.to_ids, s.ids, n, s.k);
    if (s.gates != nullptr) {
      move(static_cast<float*>(s.to_gates), static_cast<const float*>(s.gates),
           n, s.k);
    }
    if (s.targets != nullptr) move(s.to_targets, s.targets, n, 1);
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
  SortPairs(s);
}

template <typename T>
void AssignSlots(Stream&, const AssignSlotsArgs& s) {
  TakeSlots(s);
}

template <typename T>
void GatherRows(Stream&, const GatherRowsArgs& s) {
  const int64_t rows = s.offsets != nullptr ? s.offsets[s.E] : s.cap;
#pragma omp parallel for schedule(static) if (rows * s.D > kParallelFrom)
  for (int64_t row = 0; row < rows; ++row) {
    T* const y = static_cast<T*>(s.y) + row * s.D;
    if (s.pairs[row] < 0) {
      std::memset(y, 0, s.D * sizeof(T));
      continue;
    }
    std::memcpy(y, static_cast<const T*>(s.x) + s.pairs[row] / s.k * s.D,
                s.D * sizeof(T));
  }
}

template <typename T>
void CombineRows(Stream&, const CombineRowsArgs& s) {
  const T* const x = static_cast<const T*>(s.x);
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t n = 0; n < s.N; ++n) {
    const int32_t* const rows = s.rows + n * s.k;
    T* const y = static_cast<T*>(s.y) + n * s.D;
    ForRow(s.D, [&](auto load, auto store) DELINK_LAMBDA {
      Vec sum{};
      for (int64_t j = 0; j < s.k; ++j) {
        if (rows[j] >= 0) sum += load(x + rows[j] * s.D);
      }
      store(y, sum);
    });
  }
}

namespace {

template <typename Args>
DELINK_INLINE float GateOf(const Args& s, int64_t row) {
  if (s.gates == nullptr) return 1.0F;
  return static_cast<const float*>(s.gates)[s.pairs[row]];
}

}  // namespace

template <typename T>
void GroupedBias(Stream&, const GroupedBiasArgs& s) {
  for (int64_t e = 0; e < s.E; ++e) {
    const T* const b = static_cast<const T*>(s.b) + e * s.D;
    const int64_t first = s.offsets[e], end = s.offsets[e + 1];
#pragma omp parallel for schedule(static) if ((end - first) * s.D > \
                                              kParallelFrom)
    for (int64_t row = first; row < end; ++row) {
      const float gate = GateOf(s, row);
      T* const y = static_cast<T*>(s.y) + row * s.D;
      ForRow(s.D, [&](auto load, auto store) DELINK_LAMBDA {
        store(y, Fma(gate + Vec{}, load(b), load(y)));
      });
    }
  }
}

template <typename T>
void GroupedBiasGrad(Stream&, const GroupedBiasGradArgs& s) {
  const int64_t blocks = (s.D + kColumnBlock - 1) / kColumnBlock;
  const int64_t rows = s.offsets[s.E];
#pragma omp parallel for schedule(static) if (rows * s.D > kParallelFrom)
  for (int64_t i = 0; i < s.E * blocks; ++i) {
    const int64_t e = i / blocks, d = i % blocks * kColumnBlock;
    const int64_t columns = s.D - d < kColumnBlock ? s.D - d : kColumnBlock;
    const T* const dy = static_cast<const T*>(s.dy) + d;
    float* const db = static_cast<float*>(s.db) + e * s.D + d;
    ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
      Vec sum = s.accumulate ? load(db) : Vec{};
      for (int64_t row = s.offsets[e]; row < s.offsets[e + 1]; ++row) {
        sum = Fma(GateOf(s, row) + Vec{}, load(dy + row * s.D), sum);
      }
      store(db, sum);
    });
  }
}

template <typename T>
void GroupedBiasGates(Stream&, const GroupedBiasGatesArgs& s) {
  for (int64_t e = 0; e < s.E; ++e) {
    const T* const b = static_cast<const T*>(s.b) + e * s.D;
    const int64_t first = s.offsets[e], end = s.offsets[e + 1];
#pragma omp parallel for schedule(static) if ((end - first) * s.D > \
                                              kParallelFrom)
    for (int64_t row = first; row < end; ++row) {
      const T* const dy = static_cast<const T*>(s.dy) + row * s.D;
      Vec sums{};
      ForRow(s.D, [&](auto load, auto)
                      DELINK_LAMBDA { sums = Fma(load(dy), load(b), sums); });
      static_cast<float*>(s.dgates)[s.pairs[row]] = ReduceAdd(sums);
    }
  }
}

namespace {

// Calls run(act, slope): of a vector of values, the GELU and its derivative.
template <typename Run>
DELINK_INLINE void WithGelu(ExpertActivation activation, const Run& run) {
  if (activation == ExpertActivation::kGeluErf) {
    run([](Vec v) DELINK_LAMBDA { return v * NormalCdf(v); },
        [](Vec v) DELINK_LAMBDA { return ErfDerivative(v); });
  } else {
    run([](Vec v) DELINK_LAMBDA { return TanhGelu(v); },
        [](Vec v) DELINK_LAMBDA { return TanhDerivative(v); });
  }
}

}  // namespace

template <typename T>
void ExpertActForward(Stream&, const ExpertActForwardArgs& s) {
  const int64_t rows = s.offsets[s.E];
#pragma omp parallel for schedule(static) if (rows * s.F > kParallelFrom)
  for (int64_t row = 0; row < rows; ++row) {
    const float by = static_cast<const float*>(s.gates)[s.pairs[row]];
    T* const y = static_cast<T*>(s.y) + row * s.F;
    if (s.activation == ExpertActivation::kSwiGlu) {
      const T* const gate = static_cast<const T*>(s.x) + row * 2 * s.F;
      const T* const up = gate + s.F;
      ForRow(s.F, [&](auto load, auto store) DELINK_LAMBDA {
        const Vec g = load(gate);
        store(y, by * (g * Sigmoid(g) * load(up)));
      });
      continue;
    }
    const T* const x = static_cast<const T*>(s.x) + row * s.F;
    WithGelu(s.activation, [&](auto act, auto) DELINK_LAMBDA {
      ForRow(s.F, [&](auto load, auto store)
                      DELINK_LAMBDA { store(y, by * act(load(x))); });
    });
  }
}

template <typename T>
void ExpertActBackward(Stream&, const ExpertActBackwardArgs& s) {
  const int64_t rows = s.offsets[s.E];
#pragma omp parallel for schedule(static) if (rows * s.F > kParallelFrom)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t pair = s.pairs[row];
    const float by = static_cast<const float*>(s.gates)[pair];
    const T* const dy = static_cast<const T*>(s.dy) + row * s.F;
    Vec sums{};
    if (s.activation == ExpertActivation::kSwiGlu) {
      const T* const gate = static_cast<const T*>(s.x) + row * 2 * s.F;
      const T* const up = gate + s.F;
      T* const dgate = static_cast<T*>(s.dx) + row * 2 * s.F;
      T* const dup = dgate + s.F;
      ForRow(s.F, [&](auto load, auto store) DELINK_LAMBDA {
        const Vec g = load(gate), u = load(up), d = load(dy);
        const Vec sigmoid = Sigmoid(g);
        const Vec silu = g * sigmoid;
        sums += d * silu * u;
        store(dup, by * (d * silu));
        store(dgate, by * (d * u * Fma(silu, 1.0F - sigmoid, sigmoid)));
      });
    } else {
      const T* const x = static_cast<const T*>(s.x) + row * s.F;
      T* const dx = static_cast<T*>(s.dx) + row * s.F;
      WithGelu(s.activation, [&](auto act, auto slope) DELINK_LAMBDA {
        ForRow(s.F, [&](auto load, auto store) DELINK_LAMBDA {
          const Vec v = load(x), d = load(dy);
          sums += d * act(v);
          store(dx, by * (d * slope(v)));
        });
      });
    }
    static_cast<float*>(s.dgates)[pair] = ReduceAdd(sums);
  }
}

#define DELINK_INSTANTIATE(T)                                              \
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
  template void GroupedBias<T>(Stream&, const GroupedBiasArgs&);           \
  template void GroupedBiasGrad<T>(Stream&, const GroupedBiasGradArgs&);   \
  template void GroupedBiasGates<T>(Stream&, const GroupedBiasGatesArgs&); \
  template void ExpertActForward<T>(Stream&, const ExpertActForwardArgs&); \
  template void ExpertActBackward<T>(Stream&, const ExpertActBackwardArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cpu::DELINK_SIMD
