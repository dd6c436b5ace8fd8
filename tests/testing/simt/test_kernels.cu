#include "framework/device/cuda/launch.cuh"
#include "framework/device/cuda/matrix.cuh"
#include "framework/device/cuda/reduce.cuh"
#include "framework/device/cuda/vector.cuh"
#include "tests/testing/simt/test_kernels.h"

namespace delink::simt_test {
namespace {

using cuda::DynamicShared;
using cuda::Launch;

__global__ void __launch_bounds__(128)
    ScaleKernel(float* to, const float* from, float factor, int64_t n,
                int64_t written) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < written) to[i] = factor * (i < n ? from[i] : 0);
}

__global__ void ScaleHalfKernel(__nv_bfloat16* to, const __nv_bfloat16* from,
                                float factor, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) to[i] = __float2bfloat16_rn(factor * __bfloat162float(from[i]));
}

template <Flaw flaw>
__global__ void SumRowsKernel(float* to, const float* from) {
  constexpr int kRow = 256;
  __shared__ float partial[2];
  __shared__ float row[kRow];
  const int self = static_cast<int>(threadIdx.x);
  if (flaw != Flaw::kUninitialised) {
    for (int i = self; i < kRow; i += 64) row[i] = 0;
    __syncthreads();
  }
  for (int i = self; i < kRow; i += 64) {
    if (flaw != Flaw::kUninitialised || i != 77) {
      row[i] = from[blockIdx.x * kRow + i];
    }
  }
  if (flaw != Flaw::kNoBarrier) __syncthreads();
  // The other warp's quarters.
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += row[(self ^ 32) + 64 * i];
  if (flaw == Flaw::kReadByAll) {
    __syncthreads();
    sum += row[0];
    if (self == 0) row[0] = sum;
  }
  sum = cuda::BlockSum(sum, partial);
  const int index = flaw == Flaw::kArrayIndex ? static_cast<int>(gridDim.x) : 1;
  if (self == 0) to[blockIdx.x] = sum + 0 * partial[index];
  if (flaw == Flaw::kHalfBarrier && self < 32) __syncthreads();
  if (flaw == Flaw::kOtherBarrier) {
    if (self < 32) {
      __syncthreads();
    } else {
      __syncthreads_or(1);
    }
  }
}

template <Flaw flaw>
__global__ void ReverseRowsKernel(float* to, const float* from) {
  auto* const row = DynamicShared<float>();
  const int lane = static_cast<int>(threadIdx.x);
  const int shift = flaw == Flaw::kSharedPastTheEnd ? 1 : 0;
  if (flaw != Flaw::kSharedPastTheEnd) {
    row[31 - lane] = 0;
    __syncwarp();
  }
  row[lane + shift] = from[blockIdx.x * 32 + lane];
  if (flaw != Flaw::kNoWarpBarrier) __syncwarp();
  to[blockIdx.x * 32 + lane] = row[31 - lane];
}

template <Flaw flaw>
__global__ void ShuffleRowsKernel(float* to, const float* from) {
  const int lane = static_cast<int>(threadIdx.x);
  if (flaw == Flaw::kLostLane && lane == 5) return;
  const float value = from[blockIdx.x * 32 + lane];
  to[blockIdx.x * 32 + lane] = __shfl_sync(cuda::kFullWarp, value, 31 - lane);
}

template <Flaw flaw>
__global__ void SumEightsKernel(float* to, const float* from) {
  __shared__ float row[32];
  const unsigned lane = threadIdx.x;
  const unsigned first = lane / 8 * 8;
  const unsigned group = 0xFFU << first;
  const unsigned looked_at =
      flaw == Flaw::kNoWarpBarrier ? (first + 8) % 32 : first;
  for (unsigned round = 0; round < 2; ++round) {
    row[lane] = from[blockIdx.x * 32 + lane];
    __syncwarp(group);
    float sum = 0;
    for (unsigned i = 0; i < 8; ++i) sum += row[looked_at + i];
    __syncwarp(group);
    if (round == 1) to[blockIdx.x * 32 + lane] = sum;
  }
}

__global__ void CopyPacksKernel(float* to, const float* from, int64_t packs) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < packs) cuda::StorePack(to + 4 * i, cuda::LoadPack(from + 4 * i));
}

__global__ void SumAllKernel(float* sum, float* parts, unsigned* count,
                             const float* from, int64_t n) {
  __shared__ float partial[2];
  __shared__ bool last;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  float mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    mine += from[i];
  }
  mine = cuda::BlockSum(mine, partial);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = mine;
    __threadfence();
    last = atomicAdd(count, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  float all = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) all += parts[i];
  *sum = all;
  *count = 0;
}

template <Flaw flaw>
__global__ void CountKernel(int* counts, const int* values, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (flaw == Flaw::kTwoWriters) {
    counts[values[i]] += 1;
  } else {
    atomicAdd(&counts[values[i]], 1);
  }
}

__global__ void VotesKernel(int* out) {
  const int odd = static_cast<int>(threadIdx.x % 2);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int any = __any_sync(cuda::kFullWarp, odd);
  const int all = __all_sync(cuda::kFullWarp, odd);
  const auto ballot = static_cast<int>(__ballot_sync(cuda::kFullWarp, odd));
  const int both = __syncthreads_and(odd);
  const int some = __syncthreads_or(odd);
  const int count = __syncthreads_count(odd);
  const int up = __shfl_up_sync(cuda::kFullWarp, lane, 3);
  const auto down = static_cast<int>(
      __shfl_down_sync(cuda::kFullWarp, static_cast<double>(lane), 3, 8));
  // Groups of 8 that exchange values at their own pace.
  const unsigned group = 0xFFU << (lane / 8 * 8);
  int sum = lane;
  for (int i = 4; i > 0; i /= 2) sum += __shfl_xor_sync(group, sum, i, 8);
  if (threadIdx.x != 37) return;
  const int values[] = {any, all, ballot, both, some, count, up, down, sum};
  for (int i = 0; i < 9; ++i) out[i] = values[i];
}

// Rows of 16 numbers in 48 bytes.
template <bool kTransposed>
__global__ void MultiplyKernel(float* to, const float* a, const float* b,
                               bool all) {
  constexpr int kStride = 24;
  alignas(16) __shared__ __nv_bfloat16 left[16 * kStride];
  alignas(16) __shared__ __nv_bfloat16 right[16 * kStride];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) {
    const int row = i / 16, column = i % 16;
    const int at =
        kTransposed ? column * kStride + row : row * kStride + column;
    left[at] = __float2bfloat16_rn(a[i]);
    right[at] = __float2bfloat16_rn(b[i]);
  }
  __syncwarp();
  uint32_t of_a[4], of_b[4];
  const int matrix = lane / 8, row = lane % 8;
  const int lower = matrix % 2 * 8, upper = matrix / 2 * 8;
  cuda::LoadMatrices<kTransposed>(
      left + (kTransposed ? (upper + row) * kStride + lower
                          : (lower + row) * kStride + upper),
      of_a);
  cuda::LoadMatrices<!kTransposed>(
      right + (kTransposed ? (upper + row) * kStride + lower
                           : (lower + row) * kStride + upper),
      of_b);
  for (int half = 0; half < 2; ++half) {
    float sum[4] = {};
    if (all || lane != 9) {
      cuda::AddProduct(of_a, of_b[2 * half], of_b[2 * half + 1], sum);
    }
    for (int i = 0; i < 4; ++i) {
      to[(lane / 4 + i / 2 * 8) * 16 + 8 * half + lane % 4 * 2 + i % 2] =
          sum[i];
    }
  }
}

__global__ void IndicesKernel(int* to) {
  const unsigned block =
      blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread =
      threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned size = blockDim.x * blockDim.y * blockDim.z;
  to[block * size + thread] = static_cast<int>(block * size + thread);
}

__attribute__((noinline)) float Down(volatile float* from, int depth) {
  volatile float here[1024];
  here[depth % 1024] = *from;
  return depth == 0 ? here[0]
                    : 1 + Down(&here[depth % 1024], depth - 1) + here[depth];
}
__global__ void DeepKernel(float* to, int depth) {
  float one = 1;
  to[0] = Down(&one, depth);
}

unsigned Blocks(int64_t n, int64_t each) {
  return static_cast<unsigned>((n + each - 1) / each);
}

}  // namespace

void Scale(Stream& stream, float* to, const float* from, float factor,
           int64_t n, Flaw flaw) {
  const int64_t written = flaw == Flaw::kPastTheEnd ? n + 1 : n;
  Launch(ScaleKernel, {Blocks(n, 128)}, {128}, 0, stream, to, from, factor, n,
         written);
}

void ScaleHalf(Stream& stream, uint16_t* to, const uint16_t* from, float factor,
               int64_t n) {
  Launch(ScaleHalfKernel, {Blocks(n, 96)}, {96}, 0, stream,
         reinterpret_cast<__nv_bfloat16*>(to),
         reinterpret_cast<const __nv_bfloat16*>(from), factor, n);
}

void SumRows(Stream& stream, float* to, const float* from, int64_t rows,
             Flaw flaw) {
  const auto kernel =
      flaw == Flaw::kNoBarrier       ? SumRowsKernel<Flaw::kNoBarrier>
      : flaw == Flaw::kHalfBarrier   ? SumRowsKernel<Flaw::kHalfBarrier>
      : flaw == Flaw::kOtherBarrier  ? SumRowsKernel<Flaw::kOtherBarrier>
      : flaw == Flaw::kUninitialised ? SumRowsKernel<Flaw::kUninitialised>
      : flaw == Flaw::kArrayIndex    ? SumRowsKernel<Flaw::kArrayIndex>
      : flaw == Flaw::kReadByAll     ? SumRowsKernel<Flaw::kReadByAll>
                                     : SumRowsKernel<Flaw::kNone>;
  Launch(kernel, {static_cast<unsigned>(rows)}, {64}, 0, stream, to, from);
}

void ReverseRows(Stream& stream, float* to, const float* from, int64_t rows,
                 bool shuffles, Flaw flaw) {
  const auto kernel =
      flaw == Flaw::kNoWarpBarrier ? ReverseRowsKernel<Flaw::kNoWarpBarrier>
      : flaw == Flaw::kSharedPastTheEnd
          ? ReverseRowsKernel<Flaw::kSharedPastTheEnd>
      : flaw == Flaw::kLostLane ? ShuffleRowsKernel<Flaw::kLostLane>
      : shuffles                ? ShuffleRowsKernel<Flaw::kNone>
                                : ReverseRowsKernel<Flaw::kNone>;
  Launch(kernel, {static_cast<unsigned>(rows)}, {32}, 32 * sizeof(float),
         stream, to, from);
}

void SumEights(Stream& stream, float* to, const float* from, int64_t rows,
               Flaw flaw) {
  const auto kernel = flaw == Flaw::kNoWarpBarrier
                          ? SumEightsKernel<Flaw::kNoWarpBarrier>
                          : SumEightsKernel<Flaw::kNone>;
  Launch(kernel, {static_cast<unsigned>(rows)}, {32}, 0, stream, to, from);
}

void CopyPacks(Stream& stream, float* to, const float* from, int64_t packs,
               Flaw flaw) {
  Launch(CopyPacksKernel, {Blocks(packs, 64)}, {64}, 0, stream, to,
         flaw == Flaw::kMisaligned ? from + 1 : from, packs);
}

void SumAll(Stream& stream, float* sum, float* parts, unsigned* count,
            const float* from, int64_t n, int blocks) {
  Launch(SumAllKernel, {static_cast<unsigned>(blocks)}, {64}, 0, stream, sum,
         parts, count, from, n);
}

void Count(Stream& stream, int* counts, const int* values, int64_t n,
           Flaw flaw) {
  const auto kernel = flaw == Flaw::kTwoWriters ? CountKernel<Flaw::kTwoWriters>
                                                : CountKernel<Flaw::kNone>;
  Launch(kernel, {Blocks(n, 32)}, {32}, 0, stream, counts, values, n);
}

void Votes(Stream& stream, int* out) {
  Launch(VotesKernel, {1}, {64}, 0, stream, out);
}

void Multiply(Stream& stream, float* to, const float* a, const float* b,
              bool transposed, Flaw flaw) {
  Launch(transposed ? MultiplyKernel<true> : MultiplyKernel<false>, {1}, {32},
         0, stream, to, a, b, flaw != Flaw::kLostLane);
}

void Indices(Stream& stream, int* to) {
  Launch(IndicesKernel, {2, 3, 2}, {4, 3, 2}, 0, stream, to);
}

void Deep(Stream& stream, float* to, int depth) {
  Launch(DeepKernel, {1}, {1}, 0, stream, to, depth);
}

}  // namespace delink::simt_test
