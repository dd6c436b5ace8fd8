// Matrix products with multiply-adds of vectors. Panels are f32; copying widens
// bf16.
#include <cstdint>

#include "layers/kernels/cpu/simd/blocks.h"
#include "layers/kernels/cpu/simd/gemm_tile.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/simd/transpose.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// to[l][lane] = from[lane * stride + l] for the lanes of one vector and all
// l < k; rows of `to` have kLanes. A store may write past its row, to elements
// that are written later.
template <int64_t kLanes, typename T>
void PackVector(const T* from, int64_t stride, int64_t lanes, int64_t k,
                float* to) {
  for (int64_t l = 0; l < k; l += kWidth) {
    const int64_t columns = Smaller(kWidth, k - l);
    Vec rows[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) {
      const T* p = from + i * stride + l;
      rows[i] = i >= lanes         ? Vec{}
                : columns < kWidth ? LoadPartial(p, columns)
                                   : Load(p);
    }
    Transpose(rows);
    for (int64_t j = 0; j < columns; ++j) {
      Store(to + (l + j) * kLanes, rows[j]);
    }
  }
}

// to[panel][l][lane] = from[(panel * kLanes + lane) * stride + l * k_stride];
// lanes past `count` are 0. One of the strides is 1. Writes up to a vector
// more.
template <int64_t kLanes, typename T>
void PackLanes(const T* from, int64_t stride, int64_t k_stride, int64_t count,
               int64_t k, float* to) {
  for (int64_t first = 0; first < count; first += kLanes, to += k * kLanes) {
    const int64_t lanes = Smaller(kLanes, count - first);
    const T* panel = from + first * stride;
    if (k_stride == 1) {
      // The last first, since it may write into the next row.
      constexpr int64_t kLast = (kLanes - 1) / kWidth * kWidth;
      for (int64_t lane = kLast; lane >= 0; lane -= kWidth) {
        PackVector<kLanes>(panel + lane * stride, stride, lanes - lane, k,
                           to + lane);
      }
      continue;
    }
    for (int64_t l = 0; l < k; ++l) {
      const T* row = panel + l * k_stride;
      float* const packed = to + l * kLanes;
      if constexpr (kLanes % kWidth != 0) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          packed[lane] = lane < lanes ? LoadOne(row + lane) : 0.0F;
        }
        continue;
      }
      for (int64_t lane = 0; lane < kLanes; lane += kWidth) {
        const int64_t rest = lanes - lane;
        Store(packed + lane, rest >= kWidth ? Load(row + lane)
                             : rest > 0     ? LoadPartial(row + lane, rest)
                                            : Vec{});
      }
    }
  }
}

// Elements of C in a cache line.
constexpr int64_t kLineFloats = 64 / sizeof(float);

struct Vectors {
  using Element = float;
  static constexpr int64_t kRows = kMaxRows;
  static constexpr int64_t kColumns = kMaxVecs * kWidth;
  static constexpr int64_t kBlockRows = 48 * kRows;
  static constexpr int64_t kStep = 1;
  static constexpr int64_t kSlice = 256;
  struct Scope {};

  template <bool kIsA, typename T>
  static void Pack(const T* from, int64_t stride, int64_t k_stride,
                   int64_t count, int64_t k, float* to) {
    PackLanes<kIsA ? kRows : kColumns>(from, stride, k_stride, count, k, to);
  }
  static void Multiply(const Panel<float>& p) {
    // Fetches the lines of C while the products are summed: stores are written
    // in order, so each line that is not there yet delays all later ones.
    for (int64_t row = 0; row < p.rows && !p.accumulate; ++row) {
      for (int64_t column = 0; column < p.columns; column += kLineFloats) {
        __builtin_prefetch(p.c + row * p.ldc + column, 1);
      }
    }
    delink::cpu::DELINK_SIMD::Multiply<true>({.m = p.rows,
                                              .n = p.columns,
                                              .k = p.k,
                                              .a = p.a,
                                              .lda = kRows,
                                              .b = p.b,
                                              .ldb = kColumns,
                                              .c = p.c,
                                              .ldc = p.ldc,
                                              .accumulate = p.accumulate});
  }
};

}  // namespace

template <typename T>
void Matmul(Stream&, const MatmulArgs& s) {
  Product<Vectors, T>(s);
}

template void Matmul<float>(Stream&, const MatmulArgs&);
template void Matmul<BFloat16>(Stream&, const MatmulArgs&);

}  // namespace delink::cpu::DELINK_SIMD
