// Cross-entropy of rows of logits, and its gradient in their place.
//
// Each block has a row. Its threads read it once and compute the maximum and
// the sum of exponentials together; a thread's sum is relative to the largest
// number that it has seen. Packs are counted from the row's start, so the sum
// does not depend on the row's address. Aligned rows are read by 16 bytes. (All
// rows are aligned if the first one is and `ld` elements are a multiple of 16
// bytes. Other rows need more loads, but not more traffic.) Then the threads
// write the gradient in aligned packs of 16 bytes, and the few numbers before
// the first and after the last pack one by one. Between the two passes, each
// thread keeps its packs of an aligned row in shared memory as far as they fit,
// and reads the rest again from the L2 cache.
//
// Finally one block adds the losses of the rows, in order.
#pragma once

#include <algorithm>
#include <limits>

#include "framework/device/cuda/ordered_sum.cuh"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"
#include "layers/kernels/cuda/math.cuh"

namespace delink::cuda {

inline constexpr int kCrossEntropyThreads = 512;  // at most
inline constexpr int kPacksAhead = 4;             // loaded together

// A thread's share of a row. The row is cut into packs, the first of which
// starts at element `head`; fewer than two packs of elements are left over.
// Counted in 32 bits, as ids of tokens are.
template <typename T>
struct RowPacks {
  static constexpr int kSize = Pack<T>::kSize;
  int V, head, count;

  __device__ RowPacks(int elements, int first)
      : V(elements), head(first), count((V - head) / kSize) {}
  // The first pack starts at the first aligned address.
  __device__ static RowPacks Aligned(const T* row, int V) {
    const auto behind =
        static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
    return RowPacks(V, std::min(V, (kSize - behind) % kSize));
  }
  __device__ int At(int pack) const { return head + pack * kSize; }
  // This thread's element outside the packs, or -1.
  __device__ int Single() const {
    const int i = static_cast<int>(threadIdx.x);
    if (i < head) return i;
    const int behind = At(count) + i - head;
    return behind < V ? behind : -1;
  }
};

template <typename T>
__device__ bool IsAligned(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}
template <bool kAligned, typename T>
__device__ Pack<T> LoadAnywhere(const T* from) {
  if constexpr (kAligned) {
    return LoadPack(from);
  } else {
    return MakePack<T>([from](int i) { return ToFloat(from[i]); });
  }
}

// sum = sum of exp(x - max) over the numbers that a thread has seen.
struct SoftmaxPart {
  float max = std::numeric_limits<float>::lowest();
  float sum = 0.0F;

  template <typename T, int kSize>
  __device__ void Add(const Pack<T, kSize>& x) {
    float largest = max;
#pragma unroll
    for (int i = 0; i < kSize; ++i) largest = fmaxf(largest, x[i]);
    sum *= FastExp(max - largest);
    max = largest;
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum += FastExp(x[i] - max);
  }
};

// Adds a thread's packs of the row; stores the row's first `kept` in `shared`.
template <bool kAligned, typename T, typename Part>
__device__ void ReadPacks(const T* row, int count, int kept, Pack<T>* shared,
                          Part& part) {
  const int step = static_cast<int>(blockDim.x);
  for (int p = static_cast<int>(threadIdx.x); p < count;
       p += kPacksAhead * step) {
    Pack<T> x[kPacksAhead];
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const int at = p + i * step;
      if (at < count) {
        x[i] = LoadAnywhere<kAligned>(row + at * Pack<T>::kSize);
      }
    }
#pragma unroll
    for (int i = 0; i < kPacksAhead; ++i) {
      const int at = p + i * step;
      if (at >= count) break;
      part.Add(x[i]);
      if (at < kept) StorePack(&shared[at].values[0], x[i]);
    }
  }
}

// Adds a thread's part of the row to `part`.
template <typename T, typename Part>
__device__ Part ReadRow(const T* row, int V, int kept, Pack<T>* shared,
                        Part part) {
  const RowPacks<T> packs(V, 0);
  const int single = packs.Single();
  if (single >= 0) part.Add(LoadPack<T, 1>(row + single));
  if (IsAligned(row)) {
    ReadPacks<true>(row, packs.count, kept, shared, part);
  } else {
    ReadPacks<false>(row, packs.count, kept, shared, part);
  }
  return part;
}

// Of the whole row. JoinParts returns it in the block's first warp; every
// thread must call it.
struct Softmax {
  float max;
  double sum;
};
__device__ inline Softmax JoinParts(const SoftmaxPart& part) {
  __shared__ float maxima[kWarp], sums[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const float max = WarpMax(part.max);
  const float sum = WarpSum(part.sum * FastExp(part.max - max));
  if (lane == 0) {
    maxima[warp] = max;
    sums[warp] = sum;
  }
  __syncthreads();
  Softmax row = {};
  if (warp == 0) {
    const bool there = lane < static_cast<int>(blockDim.x) / kWarp;
    const float mine = there ? maxima[lane] : max;
    row.max = WarpMax(mine);
    row.sum = WarpSum(there ? static_cast<double>(sums[lane]) *
                                  FastExp(mine - row.max)
                            : 0.0);
  }
  return row;
}

// Writes the loss of row n to row_loss, and z to row_z. Returns the factor of
// exp(x - max) in the gradient.
template <typename Args>
__device__ double WriteLoss(const Args& s, int64_t n, const Softmax& row,
                            double of_target) {
  const double log_sum = log(row.sum);
  s.row_loss[n] = log_sum + (row.max - of_target);
  if (s.z_weight == 0) return 1.0 / row.sum;
  const double lse = log_sum + row.max;
  s.row_z[n] = s.z_weight * lse * lse;
  return (1.0 + 2.0 * s.z_weight * lse) / row.sum;
}

// body(v, x) returns the gradients of x, a pack or one number at element v.
template <typename T, typename Body>
__device__ void WriteRow(T* row, int V, int kept, const Pack<T>* shared,
                         Body body) {
  const auto packs = RowPacks<T>::Aligned(row, V);
  const int single = packs.Single();
  if (single >= 0) {
    StorePack(row + single, body(single, LoadPack<T, 1>(row + single)));
  }
#pragma unroll 4
  for (int p = static_cast<int>(threadIdx.x); p < packs.count;
       p += static_cast<int>(blockDim.x)) {
    const int at = packs.At(p);
    const Pack<T> x =
        p < kept ? LoadPack(&shared[p].values[0]) : LoadPack(row + at);
    StorePack(row + at, body(at, x));
  }
}

// Writes the results of a row that is not counted. Every thread must call it.
template <typename T, typename Args>
__device__ void LeaveOutRow(const Args& s, int64_t n, T* row) {
  if (threadIdx.x == 0) {
    s.row_loss[n] = 0.0;
    if (s.z_weight != 0) s.row_z[n] = 0.0;
  }
  if (!s.want_grad) return;
  WriteRow(row, static_cast<int>(s.V), 0, static_cast<const Pack<T>*>(nullptr),
           []<int kSize>(int, Pack<T, kSize>) {
             return MakePack<T, kSize>([](int) { return 0.0F; });
           });
}

// Writes factor * exp(x - max), less 1 at `target`. The first `kept` packs are
// in `shared`.
template <typename T>
__device__ void WriteGradient(T* row, int V, int kept, const Pack<T>* shared,
                              float max, float factor, int target) {
  const auto gradient = [=]<int kSize>(int v, const Pack<T, kSize>& x) {
    const int of_target = target - v;
    return MakePack<T, kSize>([&](int i) {
      const float p = FastExp(x[i] - max) * factor;
      return i == of_target ? p - 1.0F : p;
    });
  };
  WriteRow(row, V, kept, shared, gradient);
}

template <typename T>
__global__ void __launch_bounds__(kCrossEntropyThreads, 2)
    CrossEntropyRows(CrossEntropyArgs s, int most_kept) {
  __shared__ float shared_max, shared_factor;
  Pack<T>* const shared = DynamicShared<Pack<T>>();
  const int64_t n = blockIdx.x;
  T* const row = static_cast<T*>(s.logits) + n * s.ld;
  const int V = static_cast<int>(s.V), target = s.targets[n];
  if (target == s.ignore_index) return LeaveOutRow(s, n, row);
  const int kept = IsAligned(row) ? most_kept : 0;
  const Softmax softmax =
      JoinParts(ReadRow(row, V, kept, shared, SoftmaxPart()));
  if (threadIdx.x == 0) {
    shared_max = softmax.max;
    shared_factor =
        static_cast<float>(WriteLoss(s, n, softmax, ToFloat(row[target])));
  }
  if (!s.want_grad) return;
  __syncthreads();
  WriteGradient(row, V, kept, shared, shared_max, shared_factor, target);
}

// The largest number of a row; SoftmaxPart's initial `max` if it has none.
template <typename T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    VocabMaxRows(VocabMaxArgs s) {
  const int64_t n = blockIdx.x;
  const T* const row = static_cast<const T*>(s.logits) + n * s.ld;
  const Softmax softmax =
      JoinParts(ReadRow(row, static_cast<int>(s.V), 0,
                        static_cast<Pack<T>*>(nullptr), SoftmaxPart()));
  if (threadIdx.x == 0) s.max[n] = static_cast<double>(softmax.max);
}

// As SoftmaxPart, from the maximum of the whole row.
struct ExponentialPart {
  float max;
  float sum = 0.0F;

  template <typename T, int kSize>
  __device__ void Add(const Pack<T, kSize>& x) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum += FastExp(x[i] - max);
  }
};

template <typename T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    VocabSumsRows(VocabSumsArgs s) {
  __shared__ double partial[kWarp];
  const int64_t n = blockIdx.x;
  const T* const row = static_cast<const T*>(s.logits) + n * s.ld;
  const bool counted = s.targets[n] != s.ignore_index;
  const int V = counted ? static_cast<int>(s.V) : 0;
  const ExponentialPart part =
      ReadRow(row, V, 0, static_cast<Pack<T>*>(nullptr),
              ExponentialPart{.max = static_cast<float>(s.max[n])});
  const double sum = BlockSum(static_cast<double>(part.sum), partial);
  if (threadIdx.x != 0) return;
  const int64_t target = s.targets[n] - s.first_token;
  s.sums[n] = sum;
  s.sums[s.N + n] =
      target >= 0 && target < V ? double{ToFloat(row[target])} : 0.0;
}

template <typename T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    VocabCrossEntropyRows(VocabCrossEntropyArgs s) {
  __shared__ float shared_factor;
  const int64_t n = blockIdx.x;
  T* const row = static_cast<T*>(s.logits) + n * s.ld;
  if (s.targets[n] == s.ignore_index) return LeaveOutRow(s, n, row);
  const auto max = static_cast<float>(s.max[n]);
  if (threadIdx.x == 0) {
    shared_factor = static_cast<float>(
        WriteLoss(s, n, Softmax{max, s.sums[n]}, s.sums[s.N + n]));
  }
  if (!s.want_grad) return;
  __syncthreads();
  WriteGradient(row, static_cast<int>(s.V), 0,
                static_cast<const Pack<T>*>(nullptr), max, shared_factor,
                s.targets[n] - static_cast<int>(s.first_token));
}

// Adds to loss_sum, z_sum and count, by two warps; the second one adds z.
__global__ void __launch_bounds__(2 * kWarp) SumLosses(CrossEntropyArgs s) {
  __shared__ double stages[2][kOrderedStage];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (threadIdx.x >= kWarp) {
    const double z = SumInOrder(*s.z_sum, s.row_z, s.N, stages[1]);
    if (lane == 0) *s.z_sum = z;
    return;
  }
  const double loss = SumInOrder(*s.loss_sum, s.row_loss, s.N, stages[0]);
  int counted = 0;
  for (int64_t n = lane; n < s.N; n += kWarp) {
    counted += s.targets[n] != s.ignore_index ? 1 : 0;
  }
  counted = WarpSum(counted);
  if (lane == 0) {
    *s.loss_sum = loss;
    *s.count += counted;
  }
}

}  // namespace delink::cuda
