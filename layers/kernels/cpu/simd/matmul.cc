// Matrix products without a library. A task is a block of C; it copies the
// parts of A and B it needs into panels as wide as the micro-kernel, a slice of
// k at a time. An element of C is one chain of multiply-adds in the order of k,
// so its bits depend on its row and column alone. Panels are f32: bf16 is
// widened as it is copied, and the chains of a bf16 C run in f32 beside it.
#include "layers/kernels/cpu/simd/gemm_tile.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/simd/simd.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kPanel = kMaxVecs * kWidth;  // columns
constexpr int64_t kBlockRows = 32 * kMaxRows;
constexpr int64_t kBlockColumns = 256;
constexpr int64_t kSlice = 256;

struct Panels {
  alignas(64) float a[kBlockRows * kSlice];     // [panel][k][kMaxRows]
  alignas(64) float b[kBlockColumns * kSlice];  // [panel][k][kPanel]
};

// A block of C while it is summed: in place if it is f32.
struct Sums {
  float* at;
  int64_t ld;
};

int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// to[panel][l][lane] = from[(panel * kLanes + lane) * stride + l * k_stride];
// lanes past `count` are 0.
template <int64_t kLanes, typename T>
void Pack(const T* from, int64_t stride, int64_t k_stride, int64_t count,
          int64_t k, float* to) {
  for (int64_t first = 0; first < count; first += kLanes, to += k * kLanes) {
    const int64_t lanes = Smaller(kLanes, count - first);
    const T* panel = from + first * stride;
    if (stride == 1) {
      for (int64_t l = 0; l < k; ++l) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          to[l * kLanes + lane] = LoadOne(panel + l * k_stride + lane);
        }
        for (int64_t lane = lanes; lane < kLanes; ++lane) {
          to[l * kLanes + lane] = 0.0F;
        }
      }
      continue;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      for (int64_t l = 0; l < k; ++l) {
        to[l * kLanes + lane] =
            lane < lanes ? LoadOne(panel + lane * stride + l * k_stride) : 0.0F;
      }
    }
  }
}

// What is there before the first product is added.
template <typename T, typename C>
void Start(const MatmulArgs& s, int64_t i, int64_t j, int64_t rows,
           int64_t columns, Sums sums) {
  const T* bias = static_cast<const T*>(s.bias);
  for (int64_t row = 0; row < rows; ++row) {
    const C* c = static_cast<const C*>(s.c) + (i + row) * s.ldc + j;
    float* sum = sums.at + row * sums.ld;
    for (int64_t column = 0; column < columns; ++column) {
      const float before = s.accumulate ? LoadOne(c + column) : 0.0F;
      sum[column] =
          bias != nullptr ? before + LoadOne(bias + j + column) : before;
    }
  }
}

// The block of C at row i and column j, of `rows` and `columns`.
template <typename T>
void AddProducts(const MatmulArgs& s, int64_t i, int64_t j, int64_t rows,
                 int64_t columns, Sums sums, Panels* panels) {
  const int64_t a_row = s.transpose_a ? 1 : s.lda;
  const int64_t a_k = s.transpose_a ? s.lda : 1;
  const int64_t b_column = s.transpose_b ? s.ldb : 1;
  const int64_t b_k = s.transpose_b ? 1 : s.ldb;
  const T* a = static_cast<const T*>(s.a) + i * a_row;
  const T* b = static_cast<const T*>(s.b) + j * b_column;
  for (int64_t l = 0; l < s.k; l += kSlice) {
    const int64_t k = Smaller(kSlice, s.k - l);
    Pack<kMaxRows>(a + l * a_k, a_row, a_k, rows, k, panels->a);
    Pack<kPanel>(b + l * b_k, b_column, b_k, columns, k, panels->b);
    for (int64_t column = 0; column < columns; column += kPanel) {
      for (int64_t row = 0; row < rows; row += kMaxRows) {
        Multiply<true>({.m = Smaller(kMaxRows, rows - row),
                        .n = Smaller(kPanel, columns - column),
                        .k = k,
                        .a = panels->a + row * k,
                        .lda = kMaxRows,
                        .b = panels->b + column * k,
                        .ldb = kPanel,
                        .c = sums.at + row * sums.ld + column,
                        .ldc = sums.ld,
                        .accumulate = true});
      }
    }
  }
}

template <typename T, typename C>
void Block(const MatmulArgs& s, int64_t i, int64_t j, Panels* panels) {
  const int64_t rows = Smaller(kBlockRows, s.m - i);
  const int64_t columns = Smaller(kBlockColumns, s.n - j);
  C* c = static_cast<C*>(s.c) + i * s.ldc + j;
  if constexpr (kIsF32<C>) {
    const Sums sums = {c, s.ldc};
    Start<T, C>(s, i, j, rows, columns, sums);
    AddProducts<T>(s, i, j, rows, columns, sums, panels);
  } else {
    alignas(64) float beside[kBlockRows * kBlockColumns];
    const Sums sums = {beside, kBlockColumns};
    Start<T, C>(s, i, j, rows, columns, sums);
    AddProducts<T>(s, i, j, rows, columns, sums, panels);
    for (int64_t row = 0; row < rows; ++row) {
      const float* sum = beside + row * kBlockColumns;
      C* to = c + row * s.ldc;
      ForRow(columns, [&](auto load, auto store)
                          DELINK_LAMBDA { store(to, load(sum)); });
    }
  }
}

template <typename T, typename C>
void Blocks(const MatmulArgs& s) {
  const int64_t down = (s.m + kBlockRows - 1) / kBlockRows;
  const int64_t across = (s.n + kBlockColumns - 1) / kBlockColumns;
#pragma omp parallel for schedule( \
    dynamic, 1) if (down * across > 1 && s.m * s.n * s.k > kParallelProducts)
  for (int64_t block = 0; block < down * across; ++block) {
    Panels panels;
    Block<T, C>(s, block % down * kBlockRows, block / down * kBlockColumns,
                &panels);
  }
}

}  // namespace

template <typename T>
void Matmul(Stream&, const MatmulArgs& s) {
  if (s.c_is_gradient) {
    Blocks<T, float>(s);
  } else {
    Blocks<T, T>(s);
  }
}

template void Matmul<float>(Stream&, const MatmulArgs&);
template void Matmul<BFloat16>(Stream&, const MatmulArgs&);

}  // namespace delink::cpu::DELINK_SIMD
