// Rotary positions (ref/rotary.cc has the formulas). A block has one position
// of some samples. It computes the sines and cosines once, in shared memory,
// and then rotates all heads. These are f32, from angles reduced in double, so
// positions of long contexts stay exact, and no table is read.
#pragma once

#include "framework/device/cuda/divisor.cuh"
#include "framework/device/cuda/vector.cuh"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

inline constexpr int kRotaryThreads = 128;

struct SinCos {
  float sin, cos;
};

// For angle >= 0. Subtracts a whole multiple of pi/2, which is the sum of two
// doubles. The polynomials are those of Moshier's Cephes, sinf and cosf. (The
// library's sincosf keeps a table in local memory for large angles.)
__device__ inline SinCos SinCosOf(double angle) {
  const double n = rint(angle * 0.63661977236758134308);
  double rest = fma(-n, 1.57079632679489655800, angle);
  rest = fma(-n, 6.12323399573676603587e-17, rest);
  const int quadrant = static_cast<int>(static_cast<int64_t>(n) & 3);
  const float x = static_cast<float>(rest), z = x * x;
  float s = -1.9515295891e-4F * z + 8.3321608736e-3F;
  s = s * z - 1.6666654611e-1F;
  s = s * z * x + x;
  float c = 2.443315711809948e-5F * z - 1.388731625493765e-3F;
  c = c * z + 4.166664568298827e-2F;
  c = c * z * z + (1.0F - 0.5F * z);
  const bool odd = (quadrant & 1) != 0;
  const float sin = odd ? c : s, cos = odd ? s : c;
  return {(quadrant & 2) != 0 ? -sin : sin,
          ((quadrant + 1) & 2) != 0 ? -cos : cos};
}

struct RotaryShape {
  int64_t B, T, row;  // elements of a token
  int heads, Dh;
  int64_t first_position;
  const int32_t* positions;  // [B, T], or null
  int64_t samples_each;      // of a block; 1 where there are positions
  bool inverse;
  Divisor by_token;  // heads * pairs / kWidth
  Divisor by_head;   // pairs / kWidth
};

// Grid [T * ceil(B / samples_each)]. A thread rotates kWidth pairs at a time:
// with kHalves one pack of each half, else two consecutive packs.
template <typename T, int kWidth, bool kHalves>
__global__ void __launch_bounds__(kRotaryThreads)
    RotaryKernel(RotaryShape s, const __grid_constant__ RotaryAngles angles,
                 T* x) {
  __shared__ SinCos turns[kMaxRotaryPairs];
  const int64_t t = blockIdx.x % s.T;
  const int64_t first = blockIdx.x / s.T * s.samples_each;
  const auto position =
      static_cast<double>(s.positions != nullptr ? s.positions[first * s.T + t]
                                                 : s.first_position + t);
  for (int i = static_cast<int>(threadIdx.x); i < angles.pairs;
       i += kRotaryThreads) {
    SinCos turn = SinCosOf(position * angles.inverse_frequency[i]);
    if (s.inverse) turn.sin = -turn.sin;
    turns[i] = turn;
  }
  __syncthreads();
  const int each = angles.pairs / kWidth;  // of a head
  const int token = s.heads * each;        // of a token
  const int64_t samples =
      first + s.samples_each < s.B ? s.samples_each : s.B - first;
  for (int64_t k = threadIdx.x; k < samples * token; k += kRotaryThreads) {
    const int64_t b = s.by_token.Quotient(k);
    const int in_token = static_cast<int>(k - b * token);
    const int head = static_cast<int>(s.by_head.Quotient(in_token));
    const int i = (in_token - head * each) * kWidth;  // the first pair
    T* const at = x + ((first + b) * s.T + t) * s.row + int64_t{head} * s.Dh +
                  (kHalves ? i : 2 * i);
    T* const next = at + (kHalves ? angles.pairs : kWidth);
    const auto low = LoadPack<T, kWidth>(at), high = LoadPack<T, kWidth>(next);
    float out[2 * kWidth];
#pragma unroll
    for (int pair = 0; pair < kWidth; ++pair) {
      const int ia = kHalves ? pair : 2 * pair;
      const int ib = kHalves ? kWidth + pair : 2 * pair + 1;
      const float va = ia < kWidth ? low[ia % kWidth] : high[ia % kWidth];
      const float vb = ib < kWidth ? low[ib % kWidth] : high[ib % kWidth];
      const SinCos turn = turns[i + pair];
      out[ia] = va * turn.cos - vb * turn.sin;
      out[ib] = va * turn.sin + vb * turn.cos;
    }
    StorePack(at, MakePack<T, kWidth>([&](int j) { return out[j]; }));
    StorePack(next,
              MakePack<T, kWidth>([&](int j) { return out[kWidth + j]; }));
  }
}

}  // namespace delink::cuda
