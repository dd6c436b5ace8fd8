#include "layers/kernels/cpu/helpers.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "framework/base/check.h"
#include "framework/tensor/bfloat16.h"

namespace delink::cpu {
namespace {

int64_t Floats(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

template <typename T>
constexpr bool kIsF32 = std::is_same_v<T, float>;

int Threads(int asked) { return asked > 0 ? asked : MaxThreads(); }

}  // namespace

// The query tile transposed, an output tile, the values; a tile of scores; in
// bf16 also the keys.
template <typename T>
int64_t AttentionForwardScratch(const AttentionForwardArgs& s, int threads) {
  const int64_t packed = kIsF32<T> ? 0 : kKeyTile;
  return Threads(threads) * Floats((2 * kQueryTile + kKeyTile + packed) * s.Dh +
                                   kQueryTile * kKeyTile);
}

// Queries and output gradients, plain and transposed, the keys; two tiles of
// scores; in bf16 also the values, and the sums that become dq, dk and dv.
template <typename T>
int64_t AttentionBackwardScratch(const AttentionBackwardArgs& s, int threads) {
  const int64_t packed = kIsF32<T> ? 0 : kKeyTile + kQueryTile + 2 * s.Tk;
  return Threads(threads) * Floats((4 * kQueryTile + kKeyTile + packed) * s.Dh +
                                   2 * kQueryTile * kKeyTile);
}

template int64_t AttentionForwardScratch<float>(const AttentionForwardArgs&,
                                                int);
template int64_t AttentionForwardScratch<BFloat16>(const AttentionForwardArgs&,
                                                   int);
template int64_t AttentionBackwardScratch<float>(const AttentionBackwardArgs&,
                                                 int);
template int64_t AttentionBackwardScratch<BFloat16>(
    const AttentionBackwardArgs&, int);

int TeamFor(int64_t bytes, int64_t bytes_per_thread) {
  DELINK_CHECK_GE(bytes, bytes_per_thread)
      << "attention: scratch for less than one thread";
  return static_cast<int>(
      std::min<int64_t>(bytes / bytes_per_thread, MaxThreads()));
}

RngKey SampleKey(const DropoutArgs& s, int64_t b) {
  return Fold(Fold(*s.step_key, s.name_hash),
              static_cast<uint64_t>(s.sample[b]));
}

const int32_t* OrderByToken(const int32_t* tokens, int64_t n) {
  thread_local std::vector<int32_t> order;
  DELINK_CHECK_LE(n, int64_t{std::numeric_limits<int32_t>::max()});
  order.resize(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return tokens[a] != tokens[b] ? tokens[a] < tokens[b] : a < b;
  });
  return order.data();
}

float* ThreadFloats(int64_t n) {
  thread_local std::vector<float> floats;
  if (std::ssize(floats) < n) floats.resize(static_cast<size_t>(n));
  return floats.data();
}

void CountGroups(const CountPairsArgs& s) {
  std::fill_n(s.counts, s.G * (s.E + 1), 0.0);
  for (int64_t n = 0; n < s.N; ++n) {
    if (s.targets != nullptr && s.targets[n] < 0) continue;
    double* const counts = s.counts + (s.first + n) / s.tokens * (s.E + 1);
    for (int64_t j = 0; j < s.k; ++j) counts[s.ids[n * s.k + j]] += 1;
    counts[s.E] += 1;
  }
}

namespace {

bool Counts(const AssignRowsArgs& s, int64_t pair) {
  return s.targets == nullptr || s.targets[pair / s.k] >= 0;
}

// Sets the rows of an expert's counted pairs beyond the capacity to -1.
// pairs[0 .. count) are the expert's, ascending.
void DropPairs(const AssignRowsArgs& s, const int32_t* pairs, int64_t count) {
  thread_local std::vector<int32_t> counted;
  counted.clear();
  std::copy_if(pairs, pairs + count, std::back_inserter(counted),
               [&](int32_t pair) { return Counts(s, pair); });
  if (std::ssize(counted) <= s.capacity) return;
  const auto kept = counted.begin() + s.capacity;
  if (s.gates != nullptr) {
    const auto order = [&](int32_t pair) {
      const float gate = static_cast<const float*>(s.gates)[pair];
      return std::isnan(gate) ? HUGE_VALF : gate;
    };
    std::nth_element(
        counted.begin(), kept, counted.end(), [&](int32_t a, int32_t b) {
          return order(a) != order(b) ? order(a) > order(b) : a < b;
        });
  }
  std::for_each(kept, counted.end(), [&](int32_t pair) { s.rows[pair] = -1; });
}

}  // namespace

void SortPairs(const AssignRowsArgs& s) {
  const int64_t pairs = s.N * s.k;
  std::fill_n(s.loads, s.E, 0);
  std::fill_n(s.offsets, s.E + 1, 0);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    s.rows[pair] = -1;
    if (s.ids[pair] < 0) continue;
    s.offsets[s.ids[pair] + 1] += 1;
    s.loads[s.ids[pair]] += Counts(s, pair) ? 1 : 0;
    s.rows[pair] = 0;
  }
  std::partial_sum(s.offsets, s.offsets + s.E + 1, s.offsets);
  // offsets[e] becomes where e's pairs end.
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (s.ids[pair] < 0) continue;
    s.pairs[s.offsets[s.ids[pair]]++] = static_cast<int32_t>(pair);
  }
  int32_t row = 0;
  for (int64_t e = 0, first = 0; e < s.E; ++e) {
    const int64_t end = s.offsets[e];
    if (s.capacity > 0) DropPairs(s, s.pairs + first, end - first);
    s.offsets[e] = row;
    for (int64_t i = first; i < end; ++i) {
      const int32_t pair = s.pairs[i];
      if (s.rows[pair] < 0) continue;
      s.rows[pair] = row;
      s.pairs[row++] = pair;
    }
    first = end;
  }
  s.offsets[s.E] = row;
}

void TakeSlots(const AssignSlotsArgs& s) {
  const int64_t slots = s.ranges() * s.cap, of_slot = s.once ? s.k : 1;
  std::fill_n(s.slots, s.N * (s.once ? s.ranks : s.k), -1);
  std::fill_n(s.pairs, slots, -1);
  std::fill_n(s.to_ids, slots * of_slot, -1);
  std::vector<int64_t> taken(static_cast<size_t>(s.ranges()));
  for (int64_t i = 0; i < s.N * s.k; ++i) {
    if (s.ids[i] < 0) continue;
    const int64_t range = s.RangeOf(s.ids[i]);
    const int64_t pair = s.once ? i / s.k * s.ranks + range : i;
    int32_t& slot = s.slots[pair];
    if (slot < 0) {
      int64_t& at = taken[static_cast<size_t>(range)];
      if (at == s.cap) {
        if (s.lost != nullptr) ++*s.lost;
        continue;
      }
      slot = static_cast<int32_t>(range * s.cap + at++);
      s.pairs[slot] = static_cast<int32_t>(pair);
    }
    s.to_ids[slot * of_slot + i % of_slot] =
        static_cast<int32_t>(s.ids[i] % s.width());
  }
}

namespace {

template <typename Args>
void AddLosses(const Args& s) {
  for (int64_t n = 0; n < s.N; ++n) {
    if (s.targets[n] == s.ignore_index) continue;
    *s.loss_sum += s.row_loss[n];
    *s.count += 1;
    if (s.z_weight != 0) *s.z_sum += s.row_z[n];
  }
}

}  // namespace

void SumLosses(const CrossEntropyArgs& s) { AddLosses(s); }
void SumLosses(const VocabCrossEntropyArgs& s) {
  if (s.counts) AddLosses(s);
}

}  // namespace delink::cpu
