// Matrix products with multiply-adds of vectors: of f32, to which bf16 are
// widened when they are copied, or of pairs of bf16, if the instruction set has
// them.
#include <cstdint>
#include <type_traits>

#include "layers/kernels/cpu/simd/blocks.h"
#include "layers/kernels/cpu/simd/gemm_tile.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/simd/transpose.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

// Panels hold words: numbers in f32 or, with a kStep of 2, two bf16 that are
// consecutive in k. The words of one vector, for k from `from` on, of which
// `count` numbers are there.
template <int64_t kStep, typename T>
DELINK_INLINE Vec AlongK(const T* from, int64_t count) {
  if constexpr (kStep == 1) {
    return count >= kWidth ? Load(from) : LoadPartial(from, count);
  } else {
    Vec words{};
    if (count >= kStep * kWidth) {
      std::memcpy(&words, from, sizeof(words));
    } else {
      std::memcpy(&words, from, static_cast<size_t>(count) * sizeof(T));
    }
    return words;
  }
}

// Rows of k that are copied to all panels before the next ones. If rows are a
// power of two apart, the cache holds only a few of them.
constexpr int64_t kPackedRows = 4;

// A word of each of `count` lanes; `k` numbers are there.
template <int64_t kStep, typename T>
DELINK_INLINE Vec AcrossLanes(const T* from, int64_t k_stride, int64_t k,
                              int64_t count) {
  const auto row = [count](const T* p) DELINK_LAMBDA {
    return count >= kWidth ? Load(p) : LoadPartial(p, count);
  };
  if constexpr (kStep == 1) {
    return row(from);
  } else {
    const Vec second = k > 1 ? row(from + k_stride) : Vec{};
    return (Vec)((BitVec)row(from) >> 16 | (BitVec)second);
  }
}

// to[w][lane], word w of from[lane * stride ...], for the lanes of one vector
// and all k; rows of `to` have kLanes. A store may write past its row, to
// elements that are written later.
template <int64_t kLanes, int64_t kStep, typename T>
void PackVector(const T* from, int64_t stride, int64_t lanes, int64_t k,
                float* to) {
  for (int64_t l = 0; l < k; l += kStep * kWidth) {
    Vec words[kWidth];
    for (int64_t i = 0; i < kWidth; ++i) {
      words[i] =
          i < lanes ? AlongK<kStep>(from + i * stride + l, k - l) : Vec{};
    }
    Transpose(words);
    const int64_t count = Smaller(kWidth, Parts(k - l, kStep));
    for (int64_t j = 0; j < count; ++j, to += kLanes) Store(to, words[j]);
  }
}

// to[panel][w][lane], word w of
// from[(panel * kLanes + lane) * stride + l * k_stride]; lanes past `count` and
// numbers past k are 0. One of the strides is 1. Writes up to a vector more.
template <int64_t kLanes, int64_t kStep, typename T>
void PackLanes(const T* from, int64_t stride, int64_t k_stride, int64_t count,
               int64_t k, float* to) {
  const int64_t words = Parts(k, kStep);
  if (k_stride == 1) {
    for (int64_t first = 0; first < count; first += kLanes) {
      // The last first, since it may write into the next row.
      constexpr int64_t kLast = (kLanes - 1) / kWidth * kWidth;
      for (int64_t lane = kLast; lane >= 0; lane -= kWidth) {
        PackVector<kLanes, kStep>(from + (first + lane) * stride, stride,
                                  Smaller(kLanes, count - first) - lane, k,
                                  to + first * words + lane);
      }
    }
    return;
  }
  constexpr int64_t kWords = kPackedRows / kStep;
  for (int64_t w = 0; w < words; w += kWords) {
    const int64_t end = Smaller(w + kWords, words);
    for (int64_t first = 0; first < count; first += kLanes) {
      for (int64_t word = w; word < end; ++word) {
        const T* row = from + word * kStep * k_stride + first;
        float* const packed = to + first * words + word * kLanes;
        for (int64_t lane = 0; lane < kLanes; lane += kWidth) {
          const int64_t there = count - first - lane;
          const Vec v = there > 0 ? AcrossLanes<kStep>(row + lane, k_stride,
                                                       k - word * kStep, there)
                                  : Vec{};
          if (kLanes - lane >= kWidth) {
            Store(packed + lane, v);
          } else {
            StorePartial(packed + lane, v, kLanes - lane);
          }
        }
      }
    }
  }
}

// Elements of C in a cache line.
constexpr int64_t kLineFloats = 64 / sizeof(float);
// Steps of a sum that take about as long as a line takes from memory.
constexpr int64_t kShortSum = 48;

// With a kStep of 1 multiply-adds of f32, with one of 2 of pairs of bf16.
template <int64_t kOfStep>
struct Vectors {
  static constexpr int64_t kStep = kOfStep;
  using Element = std::conditional_t<kStep == 1, float, BFloat16>;
  static constexpr int64_t kRows = kMaxRows;
  static constexpr int64_t kColumns = kMaxVecs * kWidth;
  static constexpr int64_t kBlockRows = 48 * kRows;
  static constexpr int64_t kSlice = 256 * kStep;
  static constexpr int64_t kCopyA = 8 * kStep, kCopyB = 8 * kStep;
  struct Scope {};

  template <bool kIsA, typename T>
  static void Pack(const T* from, int64_t stride, int64_t k_stride,
                   int64_t count, int64_t k, Element* to) {
    PackLanes<kIsA ? kRows : kColumns, kStep>(from, stride, k_stride, count, k,
                                              reinterpret_cast<float*>(to));
  }
  template <typename T>
  static int64_t RowsInPlace(const MatmulArgs& s, int64_t rows) {
    // Narrow panels of B read A so often that its copy pays.
    const bool reads = std::is_same_v<T, Element> && kColumns >= 64;
    const bool whole = s.lda % kStep == 0 && s.k % kStep == 0;
    return reads && !s.transpose_a && whole ? rows : 0;
  }
  static void Multiply(const Panel<Element>& p) {
    p.ahead->Fetch(p.lines);
    const TileProduct tile = {.m = p.rows,
                              .n = p.columns,
                              .k = p.k / kStep,
                              .a = reinterpret_cast<const float*>(p.a),
                              .lda = p.lda == 0 ? kRows : p.lda / kStep,
                              .b = reinterpret_cast<const float*>(p.b),
                              .ldb = kColumns,
                              .c = p.c,
                              .ldc = p.ldc,
                              .accumulate = p.accumulate};
    // Fetches lines of C while products are summed: stores are written in
    // order, so each line that is not there yet delays all later ones. They are
    // the next rows' if a sum starts with C or takes less time than a fetch.
    const bool next = tile.accumulate || tile.k < kShortSum;
    const int64_t first = next ? kRows : 0;
    for (int64_t row = first; p.first && row < first + kRows; ++row) {
      for (int64_t column = 0; column < tile.n; column += kLineFloats) {
        __builtin_prefetch(tile.c + row * tile.ldc + column, 1);
      }
    }
    if (p.lda == 0) {
      delink::cpu::DELINK_SIMD::Multiply<true, kStep == 2>(tile);
    } else {
      delink::cpu::DELINK_SIMD::Multiply<false, kStep == 2>(tile);
    }
  }
};

// Other products of bf16 are oneDNN's if there are instructions for pairs.
#if defined(__AVX512BF16__)
template <typename T>
using Grouped = Vectors<kIsF32<T> ? 1 : 2>;
#else
template <typename T>
using Grouped = Vectors<1>;
#endif

}  // namespace

template <typename T>
void Matmul(Stream&, const MatmulArgs& s) {
  Product<Vectors<1>, T>(s);
}

template <typename T>
void GroupedMatmul(Stream&, const GroupedMatmulArgs& s) {
  GroupedProduct<Grouped<T>, T>(s);
}

template void Matmul<float>(Stream&, const MatmulArgs&);
template void Matmul<BFloat16>(Stream&, const MatmulArgs&);
template void GroupedMatmul<float>(Stream&, const GroupedMatmulArgs&);
template void GroupedMatmul<BFloat16>(Stream&, const GroupedMatmulArgs&);

}  // namespace delink::cpu::DELINK_SIMD
