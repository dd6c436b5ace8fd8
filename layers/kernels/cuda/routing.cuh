// Routing of tokens to experts, and the rows that it gives
// (ref/experts.cc has the formulas). Simple and correct.
#pragma once

#include <cmath>

#include "framework/device/cuda/reduce.cuh"
#include "layers/kernels/cuda/swiglu.cuh"
#include "layers/kernels/expert_arguments.h"

namespace delink::cuda {

inline constexpr int kRouteWarps = 4;  // in a block; a warp has a range
inline constexpr int kMaxGroups = 64;
inline constexpr int kAssignThreads = 256;

__device__ inline int LaneOfWarp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
__device__ inline int64_t WarpOfGrid() {
  return int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
}

__device__ inline bool IsFinite(float x) { return x - x == 0.0F; }

// The scores of a warp's range.
struct RangeScores {
  const float* logits;
  int64_t size;
  bool sigmoid;
  float most = 0, sum = 0;  // of a softmax: the exponentials'; else the scores'

  __device__ RangeScores(const float* logits, int64_t size, bool sigmoid)
      : logits(logits), size(size), sigmoid(sigmoid) {
    most = -INFINITY;
    for (int64_t e = LaneOfWarp(); e < size; e += kWarp) {
      most = logits[e] > most ? logits[e] : most;
    }
    most = WarpMax(most);
    for (int64_t e = LaneOfWarp(); e < size; e += kWarp) sum += Power(e);
    sum = WarpSum(sum);
  }
  __device__ float Power(int64_t e) const {
    return sigmoid ? Sigmoid(logits[e]).s : expf(logits[e] - most);
  }
  __device__ float Score(int64_t e) const {
    return sigmoid ? Power(e) : Power(e) / sum;
  }
  __device__ float SumOfScores() const { return sigmoid ? sum : 1; }
};

// A key and its number. The larger key comes first, of equal ones the lower
// number.
struct Ranked {
  float key;
  int32_t number;
  __device__ bool Before(const Ranked& other) const {
    return key > other.key || (key == other.key && number < other.number);
  }
};
__device__ inline Ranked FirstOfWarp(Ranked mine) {
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    const Ranked other = {__shfl_xor_sync(kFullWarp, mine.key, lane),
                          __shfl_xor_sync(kFullWarp, mine.number, lane)};
    if (other.Before(mine)) mine = other;
  }
  return mine;
}

// A range of experts.
struct ExpertRange {
  int64_t size, each, first, logits, choices;
  template <typename Args>
  __device__ ExpertRange(const Args& s, int64_t i)
      : size(s.E / s.form.prototypes),
        each(s.k / s.form.prototypes),
        first(i % s.form.prototypes * size),
        logits(i * size),
        choices(i * each) {}
};

// Bit g: whether experts of group g may be chosen. `values` is shared memory of
// the warp for kMaxGroups.
template <typename Value>
__device__ uint64_t OpenGroups(const RouterForm& form, int64_t size,
                               Value value, float* values) {
  const int64_t each = size / form.groups;
  for (int64_t g = LaneOfWarp(); g < form.groups; g += kWarp) {
    float largest = -INFINITY, second = -INFINITY;
    for (int64_t e = g * each; e < (g + 1) * each; ++e) {
      const float v = value(e);
      if (v > largest) {
        second = largest;
        largest = v;
      } else if (v > second) {
        second = v;
      }
    }
    values[g] = each > 1 ? largest + second : largest;
  }
  __syncwarp();
  uint64_t open = 0;
  for (int g = 0; g < form.groups; ++g) {
    int before = 0;
    for (int other = 0; other < form.groups; ++other) {
      const Ranked one = {values[other], other};
      if (one.Before({values[g], g})) ++before;
    }
    if (before < form.top_groups) open |= uint64_t{1} << g;
  }
  __syncwarp();
  return open;
}

__global__ void __launch_bounds__(kRouteWarps* kWarp) RouteKernel(RouteArgs s) {
  __shared__ float shared[kRouteWarps][kMaxGroups];
  const int64_t i = WarpOfGrid();
  if (i >= s.N * s.form.prototypes) return;
  const ExpertRange of(s, i);
  const float* const logits = static_cast<const float*>(s.logits) + of.logits;
  const float* const bias = static_cast<const float*>(s.bias);
  float* const gates = static_cast<float*>(s.gates) + of.choices;
  int32_t* const ids = s.ids + of.choices;
  bool finite = true;
  for (int64_t e = LaneOfWarp(); e < of.size; e += kWarp) {
    finite = finite && IsFinite(logits[e]) &&
             (bias == nullptr || IsFinite(bias[of.first + e]));
  }
  if (__ballot_sync(kFullWarp, !finite) != 0) {
    for (int64_t j = LaneOfWarp(); j < of.each; j += kWarp) {
      gates[j] = NAN;
      ids[j] = static_cast<int32_t>(of.first + j);
    }
    return;
  }
  const RangeScores scores(logits, of.size, s.form.sigmoid);
  const auto value = [&](int64_t e) {
    return scores.Score(e) + (bias != nullptr ? bias[of.first + e] : 0.0F);
  };
  uint64_t open = ~uint64_t{0};
  if (s.form.top_groups > 0) {
    open = OpenGroups(s.form, of.size, value, shared[threadIdx.x / kWarp]);
  }
  const int64_t group = of.size / s.form.groups;
  Ranked last = {INFINITY, -1};
  float sum = 1e-20F;
  for (int64_t j = 0; j < of.each; ++j) {
    Ranked mine = {-INFINITY, INT32_MAX};
    for (int64_t e = LaneOfWarp(); e < of.size; e += kWarp) {
      if (s.form.top_groups > 0 && ((open >> (e / group)) & 1) == 0) continue;
      const float key = bias != nullptr ? value(e) : logits[e];
      const Ranked candidate = {key, static_cast<int32_t>(e)};
      if (last.Before(candidate) && candidate.Before(mine)) mine = candidate;
    }
    last = FirstOfWarp(mine);
    const float score = scores.Score(last.number);
    sum += score;
    if (LaneOfWarp() == 0) {
      gates[j] = score;
      ids[j] = static_cast<int32_t>(of.first) + last.number;
    }
  }
  __syncwarp();
  const float by =
      static_cast<float>(s.form.scale) / (s.form.normalise ? sum : 1.0F);
  for (int64_t j = LaneOfWarp(); j < of.each; j += kWarp) gates[j] *= by;
}

// A warp has a token.
__global__ void __launch_bounds__(kRouteWarps* kWarp)
    RouteBackwardKernel(RouteBackwardArgs s) {
  const int64_t n = WarpOfGrid();
  if (n >= s.N) return;
  const bool counts = s.targets == nullptr || s.targets[n] >= 0;
  const auto* const all_logits = static_cast<const float*>(s.logits);
  float* const d = static_cast<float*>(s.dlogits);
  double balance = 0;
  for (int64_t p = 0; p < s.form.prototypes; ++p) {
    const ExpertRange of(s, n * s.form.prototypes + p);
    const RangeScores scores(all_logits + of.logits, of.size, s.form.sigmoid);
    const int32_t* const ids = s.ids + of.choices;
    const float* const dgates =
        static_cast<const float*>(s.dgates) + of.choices;
    const auto score_of = [&](int64_t j) {
      return scores.Score(ids[j] - of.first);
    };
    float sum = 0, common = 0, dot = 0, mean = 0;
    for (int64_t j = LaneOfWarp(); j < of.each; j += kWarp) sum += score_of(j);
    sum = WarpSum(sum) + 1e-20F;
    for (int64_t j = LaneOfWarp(); s.form.normalise && j < of.each;
         j += kWarp) {
      common += dgates[j] * score_of(j) / sum;
    }
    common = WarpSum(common);
    const float by =
        static_cast<float>(s.form.scale) / (s.form.normalise ? sum : 1.0F);
    for (int64_t j = LaneOfWarp(); j < of.each; j += kWarp) {
      dot += by * (dgates[j] - common) * score_of(j);
    }
    dot = WarpSum(dot);
    const float* const shares = s.dshares != nullptr && counts
                                    ? static_cast<const float*>(s.dshares) +
                                          (s.first + n) / s.tokens * s.E +
                                          of.first
                                    : nullptr;
    const float all = scores.SumOfScores();
    for (int64_t e = LaneOfWarp(); shares != nullptr && e < of.size;
         e += kWarp) {
      mean += shares[e] * scores.Score(e) / all;
    }
    mean = WarpSum(mean);
    balance += mean;
    for (int64_t e = LaneOfWarp(); e < of.size; e += kWarp) {
      const float score = scores.Score(e);
      const float ds = shares != nullptr ? (shares[e] - mean) / all : 0.0F;
      d[of.logits + e] =
          score * (s.form.sigmoid ? (1.0F - score) * ds : ds - dot);
    }
    __syncwarp();
    for (int64_t j = LaneOfWarp(); j < of.each; j += kWarp) {
      const float score = score_of(j);
      d[of.logits + ids[j] - of.first] += score *
                                          (s.form.sigmoid ? 1.0F - score : 1) *
                                          by * (dgates[j] - common);
    }
    __syncwarp();
  }
  if (s.balance != nullptr && LaneOfWarp() == 0) s.balance[n] = balance;
  if (s.dz == 0 || !counts) return;
  const RangeScores scores(all_logits + n * s.E, s.E, false);
  const float lse = scores.most + logf(scores.sum);
  for (int64_t e = LaneOfWarp(); e < s.E; e += kWarp) {
    d[n * s.E + e] += static_cast<float>(2 * s.dz) * lse * scores.Score(e);
  }
}

// Which pairs of an expert its block keeps: all that are not counted, and of
// the others `capacity`, those with the largest gates or the first.
class KeptPairs {
 public:
  // All threads of the block. Counts the expert's pairs.
  __device__ KeptPairs(const AssignRowsArgs& s, int64_t e) : s_(s), e_(e) {
    load_ = Count([](int64_t) { return true; });
    drops_ = s.capacity > 0 && load_ > s.capacity;
    if (!drops_ || s.gates == nullptr) return;
    // The largest bound that at least `capacity` gates reach.
    for (int bit = 31; bit >= 0; --bit) {
      const uint32_t tried = bound_ | (1U << bit);
      const int64_t reach =
          Count([&](int64_t pair) { return OrderOf(pair) >= tried; });
      if (reach >= s.capacity) bound_ = tried;
    }
    above_ = Count([&](int64_t pair) { return OrderOf(pair) > bound_; });
  }
  __device__ int64_t load() const { return load_; }
  // The number of pairs, counted or not, that are kept.
  __device__ int64_t kept() const {
    const int64_t all = Sum([&](int64_t pair) { return IsOf(pair); });
    return drops_ ? all - load_ + s_.capacity : all;
  }
  __device__ bool IsOf(int64_t pair) const { return s_.ids[pair] == e_; }
  __device__ bool IsCounted(int64_t pair) const {
    return IsOf(pair) &&
           (s_.targets == nullptr || s_.targets[pair / s_.k] >= 0);
  }
  // Whether it is kept if it is the expert's counted pair number `at` of those
  // that are neither above the bound nor below it.
  __device__ bool Keeps(int64_t pair, int64_t at) const {
    if (!drops_ || !IsCounted(pair)) return true;
    if (s_.gates == nullptr) return at < s_.capacity;
    const uint32_t order = OrderOf(pair);
    return order > bound_ || (order == bound_ && at < s_.capacity - above_);
  }
  // Whether a pair takes such a number.
  __device__ bool IsNumbered(int64_t pair) const {
    return IsCounted(pair) && (s_.gates == nullptr || OrderOf(pair) == bound_);
  }

 private:
  // Larger for larger gates.
  __device__ uint32_t OrderOf(int64_t pair) const {
    const uint32_t bits =
        __float_as_uint(static_cast<const float*>(s_.gates)[pair]);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return ~0U;  // NaN
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  }
  template <typename Is>
  __device__ int64_t Count(Is is) const {
    return Sum([&](int64_t pair) { return IsCounted(pair) && is(pair); });
  }
  template <typename Is>
  __device__ int64_t Sum(Is is) const {
    __shared__ int partial[kWarp];
    int count = 0;
    for (int64_t pair = threadIdx.x; pair < s_.N * s_.k; pair += blockDim.x) {
      count += is(pair) ? 1 : 0;
    }
    return BlockSum(count, partial);
  }

  const AssignRowsArgs& s_;
  int64_t e_;
  int64_t load_ = 0, above_ = 0;
  uint32_t bound_ = 0;
  bool drops_ = false;
};

__global__ void __launch_bounds__(kAssignThreads)
    NumberTokensKernel(NumberTokensArgs s) {
  const int64_t n = int64_t{blockIdx.x} * kAssignThreads + threadIdx.x;
  if (n >= s.N) return;
  const int64_t t = (s.first + n) % s.T;
  const int64_t place = s.places != nullptr ? s.places[t] : t;
  s.numbers[n] = static_cast<int32_t>((s.first + n) / s.T * s.R + place);
}

// A thread has a pair.
__global__ void __launch_bounds__(kAssignThreads)
    OrderTokensKernel(OrderTokensArgs s) {
  const int64_t pair = int64_t{blockIdx.x} * kAssignThreads + threadIdx.x;
  if (pair >= s.N * s.k) return;
  const int64_t n = pair / s.k, j = pair % s.k, to = s.numbers[n];
  s.to_ids[to * s.k + j] = s.ids[pair];
  if (s.gates != nullptr) {
    static_cast<float*>(s.to_gates)[to * s.k + j] =
        static_cast<const float*>(s.gates)[pair];
  }
  if (s.targets != nullptr && j == 0) s.to_targets[to] = s.targets[n];
}

__global__ void __launch_bounds__(kAssignThreads) KeptIdsKernel(KeptIdsArgs s) {
  const int64_t pair = int64_t{blockIdx.x} * kAssignThreads + threadIdx.x;
  if (pair >= s.N * s.k) return;
  const int64_t n = pair / s.k,
                token = s.numbers != nullptr ? s.numbers[n] : n;
  const bool has_row =
      s.rows == nullptr || s.rows[token * s.k + pair % s.k] >= 0;
  const int64_t id = s.ids[pair] - s.first;
  const bool kept = has_row && id >= 0 && id < s.E;
  s.kept[pair] = kept ? static_cast<int32_t>(id) : -1;
}

// A block has an expert.
__global__ void __launch_bounds__(kAssignThreads)
    CountRowsKernel(AssignRowsArgs s) {
  const KeptPairs pairs(s, blockIdx.x);
  const int64_t kept = pairs.kept();
  if (threadIdx.x != 0) return;
  s.loads[blockIdx.x] = static_cast<int32_t>(pairs.load());
  s.offsets[blockIdx.x + 1] = static_cast<int32_t>(kept);
}

__global__ void AddUpOffsetsKernel(AssignRowsArgs s) {
  if (threadIdx.x != 0) return;
  s.offsets[0] = 0;
  for (int64_t e = 0; e < s.E; ++e) s.offsets[e + 1] += s.offsets[e];
}

// How many threads of the block before this one have `flag`, and all.
struct Before {
  int mine, all;
};
__device__ inline Before CountBefore(bool flag) {
  __shared__ int of_warps[kAssignThreads / kWarp];
  const unsigned flags = __ballot_sync(kFullWarp, flag);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (LaneOfWarp() == 0) of_warps[warp] = __popc(flags);
  __syncthreads();
  Before before = {__popc(flags & ((1U << LaneOfWarp()) - 1)), 0};
  for (int w = 0; w < kAssignThreads / kWarp; ++w) {
    if (w < warp) before.mine += of_warps[w];
    before.all += of_warps[w];
  }
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(kAssignThreads)
    PlaceRowsKernel(AssignRowsArgs s) {
  const KeptPairs pairs(s, blockIdx.x);
  int64_t row = s.offsets[blockIdx.x], numbered = 0;
  for (int64_t first = 0; first < s.N * s.k; first += kAssignThreads) {
    const int64_t pair = first + threadIdx.x;
    const bool here = pair < s.N * s.k && pairs.IsOf(pair);
    const Before at = CountBefore(here && pairs.IsNumbered(pair));
    const bool keeps = here && pairs.Keeps(pair, numbered + at.mine);
    const Before rows = CountBefore(keeps);
    if (keeps) {
      s.rows[pair] = static_cast<int32_t>(row + rows.mine);
      s.pairs[row + rows.mine] = static_cast<int32_t>(pair);
    } else if (here) {
      s.rows[pair] = -1;
    }
    // A pair of no expert.
    if (blockIdx.x == 0 && pair < s.N * s.k && s.ids[pair] < 0) {
      s.rows[pair] = -1;
    }
    numbered += at.all;
    row += rows.all;
  }
}

// A block has a rank.
__global__ void __launch_bounds__(kAssignThreads)
    AssignSlotsKernel(AssignSlotsArgs s) {
  const int64_t rank = blockIdx.x, first = rank * s.cap;
  int64_t taken = 0;
  for (int64_t begin = 0; begin < s.N * s.k; begin += kAssignThreads) {
    const int64_t pair = begin + threadIdx.x;
    const int64_t id = pair < s.N * s.k ? s.ids[pair] : -1;
    const bool here = id >= 0 && id / s.each == rank;
    const Before before = CountBefore(here);
    const int64_t at = taken + before.mine;
    if (here && at < s.cap) {
      s.slots[pair] = static_cast<int32_t>(first + at);
      s.pairs[first + at] = static_cast<int32_t>(pair);
      s.to_ids[first + at] = static_cast<int32_t>(id % s.each);
    } else if (here || (rank == 0 && pair < s.N * s.k && id < 0)) {
      s.slots[pair] = -1;
    }
    taken += before.all;
  }
  for (int64_t at = taken + threadIdx.x; at < s.cap; at += kAssignThreads) {
    s.pairs[first + at] = -1;
    s.to_ids[first + at] = -1;
  }
}

// One block, after the slots are assigned.
__global__ void __launch_bounds__(kAssignThreads)
    CountLostKernel(AssignSlotsArgs s) {
  __shared__ int partial[kWarp];
  int lost = 0;
  for (int64_t pair = threadIdx.x; pair < s.N * s.k; pair += kAssignThreads) {
    lost += s.ids[pair] >= 0 && s.slots[pair] < 0 ? 1 : 0;
  }
  lost = BlockSum(lost, partial);
  if (threadIdx.x == 0) *s.lost += lost;
}

}  // namespace delink::cuda
