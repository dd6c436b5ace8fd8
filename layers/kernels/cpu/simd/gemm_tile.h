// C[m, n] (=|+=) A[m, k] B[k, n] for tiles that fit the caches. A block of rows
// times a few vectors of columns stays in registers for all k. Every element is
// one chain of multiply-adds in the order of k, for any tile around it.
//
// With kPairs a float of A and B stands for two bf16, consecutive in k, and k
// counts pairs.
#pragma once

#include "layers/kernels/cpu/simd/vec.h"

namespace delink::cpu::DELINK_SIMD {

struct TileProduct {
  int64_t m, n, k;
  const float* a;  // [m, k], or [k, m] when transposed
  int64_t lda;
  const float* b;  // [k, n]
  int64_t ldb;
  float* c;  // [m, n]
  int64_t ldc;
  bool accumulate;
};

// `last` is the number of columns in the last vector, kWidth unless kTail.
template <int kRows, int kVecs, bool kTransA, bool kTail, bool kPairs>
static inline void MicroKernel(const TileProduct& p, int64_t last) {
  const float* a = p.a;
  const float* b = p.b;
  Vec acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const float* c = p.c + r * p.ldc + v * kWidth;
      if (!p.accumulate) {
        acc[r][v] = Vec{};
      } else if (kTail && v == kVecs - 1) {
        acc[r][v] = LoadPartial(c, last);
      } else {
        acc[r][v] = Load(c);
      }
    }
  }
  for (int64_t l = 0; l < p.k; ++l, b += p.ldb) {
    Vec column[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      column[v] = kTail && v == kVecs - 1 ? LoadPartial(b + v * kWidth, last)
                                          : Load(b + v * kWidth);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float value;  // or a pair
      std::memcpy(&value, a + (kTransA ? l * p.lda + r : r * p.lda + l),
                  sizeof(value));
      const Vec row = Set(value);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        if constexpr (kPairs) {
          acc[r][v] = AddPairs(row, column[v], acc[r][v]);
        } else {
          acc[r][v] = Fma(row, column[v], acc[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      float* c = p.c + r * p.ldc + v * kWidth;
      if (kTail && v == kVecs - 1) {
        StorePartial(c, acc[r][v], last);
      } else {
        Store(c, acc[r][v]);
      }
    }
  }
}

template <int kVecs, bool kTransA, bool kTail, bool kPairs>
static void RowBlocks(TileProduct p, int64_t last) {
  const auto advance = [&p](int rows) {
    p.a += kTransA ? rows : rows * p.lda;
    p.c += rows * p.ldc;
    p.m -= rows;
  };
  for (; p.m >= kMaxRows; advance(kMaxRows)) {
    MicroKernel<kMaxRows, kVecs, kTransA, kTail, kPairs>(p, last);
  }
  for (; p.m >= 4; advance(4))
    MicroKernel<4, kVecs, kTransA, kTail, kPairs>(p, last);
  for (; p.m >= 2; advance(2))
    MicroKernel<2, kVecs, kTransA, kTail, kPairs>(p, last);
  for (; p.m >= 1; advance(1))
    MicroKernel<1, kVecs, kTransA, kTail, kPairs>(p, last);
}

// Whole columns of fewer than kMaxVecs vectors, or the ragged end.
template <int kVecs, bool kTransA, bool kPairs>
static void LastColumns(const TileProduct& p, int64_t vecs, int64_t last) {
  if constexpr (kVecs > 0) {
    if (vecs != kVecs) {
      LastColumns<kVecs - 1, kTransA, kPairs>(p, vecs, last);
    } else if (last == kWidth) {
      RowBlocks<kVecs, kTransA, false, kPairs>(p, last);
    } else {
      RowBlocks<kVecs, kTransA, true, kPairs>(p, last);
    }
  }
}

template <bool kTransA, bool kPairs = false>
static void Multiply(TileProduct p) {
  for (; p.n >= kMaxVecs * kWidth; p.n -= kMaxVecs * kWidth) {
    RowBlocks<kMaxVecs, kTransA, false, kPairs>(p, kWidth);
    p.b += kMaxVecs * kWidth;
    p.c += kMaxVecs * kWidth;
  }
  const int64_t vecs = (p.n + kWidth - 1) / kWidth;
  LastColumns<kMaxVecs, kTransA, kPairs>(p, vecs, p.n - (vecs - 1) * kWidth);
}

}  // namespace delink::cpu::DELINK_SIMD
