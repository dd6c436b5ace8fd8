// Pairs of tokens and experts sorted into rows and slots (ref/experts.cc has
// the formulas).
//
// Rows are a stable counting sort. The pairs are cut into segments, one for
// each warp. The warps count their segments' pairs of each expert, the counts
// of the segments before are added up, and then every warp knows where its
// pairs go. If experts have a capacity, the sorted pairs are a list from which
// each expert's block chooses those that it keeps. All of it reads a pair a
// fixed number of times, however many experts there are.
#pragma once

#include "framework/device/cuda/reduce.cuh"
#include "layers/kernels/cuda/routing.cuh"

namespace delink::cuda {

// Of an expert's pairs.
struct alignas(8) PairCount {
  int32_t all, counted;
};

struct AssignPass {
  AssignRowsArgs s;
  int64_t segment, segments;  // pairs of a segment
  int bits;                   // of an expert's number
  // [E, segments]: of the segment, and then `all` of those before it.
  PairCount* counts;
  // [E + 1]: where the pairs of an expert begin, of all pairs that have one.
  int32_t* starts;

  __device__ bool IsCounted(int64_t pair) const {
    return s.targets == nullptr || s.targets[pair / s.k] >= 0;
  }
};

// Visits the pairs of a warp's segment in order, 32 at a time:
// visit(pair, expert, peers), where peers are the lanes whose pairs have the
// same expert; it is -1 if there is no pair.
template <typename Visit>
__device__ void ForSegment(const AssignPass& p, int64_t segment, Visit visit) {
  const int64_t all = p.s.N * p.s.k, end = (segment + 1) * p.segment;
  for (int64_t first = segment * p.segment; first < end && first < all;
       first += kWarp) {
    const int64_t pair = first + LaneOfWarp();
    const int e = pair < all ? p.s.ids[pair] : -1;
    visit(pair, e, Peers(e, p.bits, __ballot_sync(kFullWarp, e >= 0)));
  }
}
__device__ inline unsigned LanesBefore() { return (1U << LaneOfWarp()) - 1; }

// A warp has a segment.
__global__ void __launch_bounds__(kRouteWarps* kWarp)
    CountSegmentsKernel(AssignPass p) {
  const int64_t segment = WarpOfGrid();
  if (segment >= p.segments) return;
  for (int64_t e = LaneOfWarp(); e < p.s.E; e += kWarp) {
    p.counts[e * p.segments + segment] = {0, 0};
  }
  __syncwarp();
  ForSegment(p, segment, [&](int64_t pair, int e, unsigned peers) {
    const bool counted = e >= 0 && p.IsCounted(pair);
    const unsigned counts = __ballot_sync(kFullWarp, counted);
    if (e >= 0 && (peers & LanesBefore()) == 0) {
      PairCount& count = p.counts[e * p.segments + segment];
      count.all += __popc(peers);
      count.counted += __popc(peers & counts);
    }
    __syncwarp();
  });
}

// A warp has an expert.
__global__ void __launch_bounds__(kWarp) AddUpSegmentsKernel(AssignPass p) {
  PairCount* const counts = p.counts + blockIdx.x * p.segments;
  PairCount total = {0, 0};
  for (int64_t first = 0; first < p.segments; first += kWarp) {
    const int64_t i = first + LaneOfWarp();
    const PairCount count = i < p.segments ? counts[i] : PairCount{0, 0};
    const int32_t before = WarpSumBefore(count.all);
    if (i < p.segments) counts[i].all = total.all + before;
    total.all += __shfl_sync(kFullWarp, before + count.all, kWarp - 1);
    total.counted += WarpSum(count.counted);
  }
  if (LaneOfWarp() != 0) return;
  p.starts[blockIdx.x + 1] = total.all;
  p.s.loads[blockIdx.x] = total.counted;
}

// One warp: the sums of offsets[1] to offsets[E].
__global__ void __launch_bounds__(kWarp)
    AddUpOffsetsKernel(int32_t* offsets, int64_t E) {
  int32_t total = 0;
  if (LaneOfWarp() == 0) offsets[0] = 0;
  for (int64_t first = 0; first < E; first += kWarp) {
    const int64_t e = first + LaneOfWarp();
    const int32_t count = e < E ? offsets[e + 1] : 0;
    const int32_t sum = WarpSumBefore(count) + count;
    if (e < E) offsets[e + 1] = total + sum;
    total += __shfl_sync(kFullWarp, sum, kWarp - 1);
  }
}

// A warp has a segment. These are the rows if there is no capacity.
__global__ void __launch_bounds__(kRouteWarps* kWarp)
    PlacePairsKernel(AssignPass p) {
  const int64_t segment = WarpOfGrid();
  if (segment >= p.segments) return;
  ForSegment(p, segment, [&](int64_t pair, int e, unsigned peers) {
    const unsigned before = peers & LanesBefore();
    int32_t* const next =
        e >= 0 ? &p.counts[e * p.segments + segment].all : nullptr;
    const int32_t at = e >= 0 ? *next : -1;
    __syncwarp();
    if (e >= 0) {
      const int32_t row = p.starts[e] + at + __popc(before);
      p.s.rows[pair] = row;
      p.s.pairs[row] = static_cast<int32_t>(pair);
      if (before == 0) *next = at + __popc(peers);
    } else if (pair < p.s.N * p.s.k) {
      p.s.rows[pair] = -1;
    }
    __syncwarp();
  });
}

// Which pairs of an expert its block keeps: all that are not counted, and of
// the others `capacity`, those with the largest gates or the first.
class KeptPairs {
 public:
  // All threads of the block.
  __device__ KeptPairs(const AssignPass& p, int64_t e)
      : p_(p),
        pairs_(p.s.pairs + p.starts[e]),
        all_(p.starts[e + 1] - p.starts[e]),
        drops_(p.s.loads[e] > p.s.capacity) {
    if (!drops_ || p.s.gates == nullptr) return;
    // The largest bound that at least `capacity` gates reach.
    for (int bit = 31; bit >= 0; --bit) {
      const uint32_t tried = bound_ | (1U << bit);
      const int64_t reach =
          Count([&](int64_t pair) { return OrderOf(pair) >= tried; });
      if (reach >= p.s.capacity) bound_ = tried;
    }
    above_ = Count([&](int64_t pair) { return OrderOf(pair) > bound_; });
  }
  // Of an expert's pairs, in their order.
  __device__ int64_t size() const { return all_; }
  __device__ int64_t operator[](int64_t i) const { return pairs_[i]; }
  // Whether it is kept if it is the expert's counted pair number `at` of those
  // that are neither above the bound nor below it.
  __device__ bool Keeps(int64_t pair, int64_t at) const {
    if (!drops_ || !p_.IsCounted(pair)) return true;
    if (p_.s.gates == nullptr) return at < p_.s.capacity;
    const uint32_t order = OrderOf(pair);
    return order > bound_ || (order == bound_ && at < p_.s.capacity - above_);
  }
  // Whether a pair takes such a number.
  __device__ bool IsNumbered(int64_t pair) const {
    return p_.IsCounted(pair) &&
           (p_.s.gates == nullptr || OrderOf(pair) == bound_);
  }

 private:
  // Larger for larger gates.
  __device__ uint32_t OrderOf(int64_t pair) const {
    const uint32_t bits =
        __float_as_uint(static_cast<const float*>(p_.s.gates)[pair]);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return ~0U;  // NaN
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  }
  template <typename Is>
  __device__ int64_t Count(Is is) const {
    __shared__ int partial[kWarp];
    int count = 0;
    for (int64_t i = threadIdx.x; i < all_; i += blockDim.x) {
      count += p_.IsCounted(pairs_[i]) && is(pairs_[i]) ? 1 : 0;
    }
    return BlockSum(count, partial);
  }

  const AssignPass& p_;
  const int32_t* pairs_;
  int64_t all_, above_ = 0;
  uint32_t bound_ = 0;
  bool drops_;
};

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

// A block has an expert. rows[pair] becomes the number of a pair among those
// that are kept, and offsets[e + 1] how many they are.
__global__ void __launch_bounds__(kAssignThreads)
    KeepPairsKernel(AssignPass p) {
  const KeptPairs pairs(p, blockIdx.x);
  int64_t row = 0, numbered = 0;
  for (int64_t first = 0; first < pairs.size(); first += kAssignThreads) {
    const int64_t i = first + threadIdx.x;
    const bool here = i < pairs.size();
    const int64_t pair = here ? pairs[i] : 0;
    const Before at = CountBefore(here && pairs.IsNumbered(pair));
    const bool keeps = here && pairs.Keeps(pair, numbered + at.mine);
    const Before rows = CountBefore(keeps);
    if (here) {
      p.s.rows[pair] = keeps ? static_cast<int32_t>(row + rows.mine) : -1;
    }
    numbered += at.all;
    row += rows.all;
  }
  if (threadIdx.x == 0) {
    p.s.offsets[blockIdx.x + 1] = static_cast<int32_t>(row);
  }
}

// A thread has a pair.
__global__ void __launch_bounds__(kAssignThreads)
    PlaceKeptKernel(AssignRowsArgs s) {
  const int64_t pair = int64_t{blockIdx.x} * kAssignThreads + threadIdx.x;
  if (pair >= s.N * s.k || s.rows[pair] < 0) return;
  const int32_t row = s.offsets[s.ids[pair]] + s.rows[pair];
  s.rows[pair] = row;
  s.pairs[row] = static_cast<int32_t>(pair);
}

// A block has a range, whose slots are taken by pairs or, with `once`, by
// tokens.
__global__ void __launch_bounds__(kAssignThreads)
    AssignSlotsKernel(AssignSlotsArgs s) {
  const int64_t range = blockIdx.x, first = range * s.cap;
  const int64_t each = s.once ? s.k : 1, takers = s.N * s.k / each;
  const auto expert_of = [&](int64_t pair) -> int32_t {
    const int64_t id = s.ids[pair];
    return id >= 0 && s.RangeOf(id) == range
               ? static_cast<int32_t>(id % s.width())
               : -1;
  };
  int64_t taken = 0;
  for (int64_t begin = 0; begin < takers; begin += kAssignThreads) {
    const int64_t i = begin + threadIdx.x;
    bool here = false;
    for (int64_t j = 0; i < takers && j < each; ++j) {
      here = here || expert_of(i * each + j) >= 0;
    }
    const Before before = CountBefore(here);
    const int64_t at = taken + before.mine;
    const bool takes = here && at < s.cap;
    const int64_t pair = s.once ? i * s.ranks + range : i;
    // A pair of no range is the first block's to write.
    const bool writes =
        here || (i < takers && (s.once || (range == 0 && s.ids[i] < 0)));
    if (writes) s.slots[pair] = takes ? static_cast<int32_t>(first + at) : -1;
    if (takes) {
      s.pairs[first + at] = static_cast<int32_t>(pair);
      for (int64_t j = 0; j < each; ++j) {
        s.to_ids[(first + at) * each + j] = expert_of(i * each + j);
      }
    }
    taken += before.all;
  }
  for (int64_t at = taken + threadIdx.x; at < s.cap; at += kAssignThreads) {
    s.pairs[first + at] = -1;
    for (int64_t j = 0; j < each; ++j) s.to_ids[(first + at) * each + j] = -1;
  }
}

// One block, after the slots are assigned.
__global__ void __launch_bounds__(kAssignThreads)
    CountLostKernel(AssignSlotsArgs s) {
  __shared__ int partial[kWarp];
  int lost = 0;
  for (int64_t i = threadIdx.x; i < s.N * s.k; i += kAssignThreads) {
    const int64_t id = s.ids[i];
    if (id < 0) continue;
    const int64_t pair = s.once ? i / s.k * s.ranks + s.RangeOf(id) : i;
    lost += s.slots[pair] < 0 ? 1 : 0;
  }
  lost = BlockSum(lost, partial);
  if (threadIdx.x == 0) *s.lost += lost;
}

}  // namespace delink::cuda
