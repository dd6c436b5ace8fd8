// AdamW with 8-bit moments: a warp updates the elements of one block of moments
// and a lane two groups of four, so that the new scales are maxima over a warp.
// A block of threads first copies the values of all codes to shared memory;
// therefore the grid fits the device, and a warp updates several blocks.
//
// Blocks are cut at multiples of 256 elements of the slab; a call may begin and
// end inside a block.
#pragma once

#include "framework/device/cuda/reduce.cuh"
#include "framework/optim/cuda/adamw.cuh"
#include "framework/tensor/block8.h"

namespace delink::cuda {

inline constexpr int kBlock8Threads = 256;
inline constexpr int kBlock8Warps = kBlock8Threads / kWarp;
inline constexpr int kGroup8 = 4;  // elements
static_assert(kBlock8 == 2 * kGroup8 * kWarp);

struct Block8Moments {
  uint8_t* m;       // [n]
  uint8_t* v;       // [n]
  float* m_scales;  // a block each
  float* v_scales;
  int64_t in_block;  // of element 0
  // The values of codes. (By value, because no device memory holds them before
  // the first call.)
  float of_m[256], of_v[256];
};

__device__ inline uint32_t SizeBits(float x) {
  return __float_as_uint(x) & 0x7FFFFFFFU;
}

// Neighbours that one lane updates, as floats.
struct Group8 {
  float p[kGroup8] = {}, g[kGroup8] = {}, m[kGroup8] = {}, v[kGroup8] = {};
};

// Copies kSize elements from i on to or from the elements of a group from k on.
// kSize is 1, or 4 at aligned addresses.
template <int kSize, typename Master>
struct Block8Access {
  const AdamWPlan& a;
  const Master& master;
  const Block8Moments& moments;

  __device__ static void Widen(const uint8_t* codes, const float* fractions,
                               float scale, float* to) {
    uint32_t word = 0;
    if constexpr (kSize == 4) {
      word = *reinterpret_cast<const uint32_t*>(codes);
    } else {
      word = *codes;
    }
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      to[k] = __fmul_rn(fractions[word >> 8 * k & 255], scale);
    }
  }
  template <bool kSigned>
  __device__ static void Narrow(const float* from, float inverse,
                                uint8_t* codes) {
    uint32_t word = 0;
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      word |= uint32_t{Code8<kSigned>(__fmul_rn(from[k], inverse))} << 8 * k;
    }
    if constexpr (kSize == 4) {
      *reinterpret_cast<uint32_t*>(codes) = word;
    } else {
      *codes = static_cast<uint8_t>(word);
    }
  }

  __device__ void Load(int64_t i, int at, const float (*fractions)[256],
                       float m_scale, float v_scale, Group8& group) const {
    float p[kSize], g[kSize];
    a.g.Load(i, g);  // behind the master it would spill registers
    master.Load(i, p);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      group.p[at + k] = p[k];
      group.g[at + k] = g[k];
    }
    Widen(moments.m + i, fractions[0], m_scale, group.m + at);
    Widen(moments.v + i, fractions[1], v_scale, group.v + at);
  }
  __device__ void Store(int64_t i, int at, float m_inverse, float v_inverse,
                        const Group8& group) const {
    float p[kSize];
#pragma unroll
    for (int k = 0; k < kSize; ++k) p[k] = group.p[at + k];
    master.Store(i, p);
    Narrow<true>(group.m + at, m_inverse, moments.m + i);
    Narrow<false>(group.v + at, v_inverse, moments.v + i);
  }
};

// Calls visit(Block8Access<4 or 1>, i, at) for the existing elements of the
// group that begins at element `first`.
template <bool kPacked, typename Master, typename Visit>
__device__ void VisitGroup(const AdamWPlan& a, const Master& master,
                           const Block8Moments& moments, int64_t first,
                           Visit visit) {
  if (kPacked && first >= 0 && first + kGroup8 <= a.n) {
    visit(Block8Access<4, Master>{a, master, moments}, first, 0);
    return;
  }
#pragma unroll
  for (int k = 0; k < kGroup8; ++k) {
    const int64_t i = first + k;
    if (i < 0 || i >= a.n) continue;
    visit(Block8Access<1, Master>{a, master, moments}, i, k);
  }
}

// One block of 8-bit values, whose first element is `begin`, or would be.
template <bool kPacked, typename Master>
__device__ void UpdateBlock8(const AdamWPlan& a, const AdamWStep& step,
                             const Master& master, const Block8Moments& moments,
                             int64_t block, const float (*fractions)[256]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t begin = block * kBlock8 - moments.in_block;
  float m_scale = 0.0F, v_scale = 0.0F;
  if (lane == 0) {
    m_scale = moments.m_scales[block];
    v_scale = moments.v_scales[block];
  }
  m_scale = __shfl_sync(kFullWarp, m_scale, 0);
  v_scale = __shfl_sync(kFullWarp, v_scale, 0);

  Group8 groups[2];
  uint32_t m_size = 0, v_size = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    Group8& group = groups[h];
    VisitGroup<kPacked>(
        a, master, moments, begin + (h * kWarp + lane) * kGroup8,
        [&](const auto& access, int64_t i, int at) {
          access.Load(i, at, fractions, m_scale, v_scale, group);
        });
#pragma unroll
    for (int k = 0; k < kGroup8; ++k) {
      step.Average(a, group.g[k], group.m[k], group.v[k]);
      step.Move(a, group.p[k], group.m[k], group.v[k]);
      m_size = m_size > SizeBits(group.m[k]) ? m_size : SizeBits(group.m[k]);
      v_size = v_size > SizeBits(group.v[k]) ? v_size : SizeBits(group.v[k]);
    }
  }
  m_scale = __uint_as_float(WarpMax(m_size));
  v_scale = __uint_as_float(WarpMax(v_size));
  const float m_inverse = Inverse8(m_scale), v_inverse = Inverse8(v_scale);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    VisitGroup<kPacked>(a, master, moments,
                        begin + (h * kWarp + lane) * kGroup8,
                        [&](const auto& access, int64_t i, int at) {
                          access.Store(i, at, m_inverse, v_inverse, groups[h]);
                        });
  }
  if (lane == 0) {
    moments.m_scales[block] = m_inverse > 0.0F ? m_scale : 0.0F;
    moments.v_scales[block] = v_inverse > 0.0F ? v_scale : 0.0F;
  }
}

template <bool kPacked, typename Master>
__global__ void __launch_bounds__(kBlock8Threads)
    AdamWBlock8Kernel(AdamWPlan a, Master master, Block8Moments moments) {
  __shared__ float fractions[2][256];
  if (a.control->skip != 0) return;
  static_assert(kBlock8Threads == 256);
  fractions[0][threadIdx.x] = moments.of_m[threadIdx.x];
  fractions[1][threadIdx.x] = moments.of_v[threadIdx.x];
  __syncthreads();
  const AdamWStep step(a);
  const int64_t blocks = (moments.in_block + a.n + kBlock8 - 1) / kBlock8;
  for (int64_t block = int64_t{blockIdx.x} * kBlock8Warps +
                       static_cast<int64_t>(threadIdx.x) / kWarp;
       block < blocks; block += int64_t{gridDim.x} * kBlock8Warps) {
    UpdateBlock8<kPacked>(a, step, master, moments, block, fractions);
  }
}

}  // namespace delink::cuda
