// Routing of tokens to experts (ref/experts.cc has the formulas). Simple and
// correct.
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
  const int64_t n = pair / s.k, token = s.numbers != nullptr ? s.numbers[n] : n;
  const bool has_row =
      s.rows == nullptr || s.rows[token * s.k + pair % s.k] >= 0;
  const int64_t id = s.ids[pair] - s.first;
  const bool kept = has_row && id >= 0 && id < s.E;
  s.kept[pair] = kept ? static_cast<int32_t>(id) : -1;
}

}  // namespace delink::cuda
