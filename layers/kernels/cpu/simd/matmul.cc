// Matrix products without a library. A task is a block of C; it copies the
// parts of A and B it needs into panels as wide as the micro-kernel, a slice of
// k at a time. An element of C is one chain of multiply-adds in the order of k,
// so its bits depend on its row and column alone.
#include "layers/kernels/cpu/simd/gemm_tile.h"
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

int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// to[panel][l][lane] = from[(panel * kLanes + lane) * stride + l * k_stride];
// lanes past `count` are 0.
template <int64_t kLanes>
void Pack(const float* from, int64_t stride, int64_t k_stride, int64_t count,
          int64_t k, float* to) {
  for (int64_t first = 0; first < count; first += kLanes, to += k * kLanes) {
    const int64_t lanes = Smaller(kLanes, count - first);
    const float* panel = from + first * stride;
    if (stride == 1) {
      for (int64_t l = 0; l < k; ++l) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          to[l * kLanes + lane] = panel[l * k_stride + lane];
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
            lane < lanes ? panel[lane * stride + l * k_stride] : 0.0F;
      }
    }
  }
}

// What C holds before the first product is added.
void Start(const MatmulArgs& s, int64_t i, int64_t j, int64_t rows,
           int64_t columns) {
  const float* bias = static_cast<const float*>(s.bias);
  for (int64_t row = i; row < i + rows; ++row) {
    float* c = static_cast<float*>(s.c) + row * s.ldc;
    for (int64_t column = j; column < j + columns; ++column) {
      const float before = s.accumulate ? c[column] : 0.0F;
      c[column] = bias != nullptr ? before + bias[column] : before;
    }
  }
}

void Block(const MatmulArgs& s, int64_t i, int64_t j, Panels* panels) {
  const int64_t rows = Smaller(kBlockRows, s.m - i);
  const int64_t columns = Smaller(kBlockColumns, s.n - j);
  const int64_t a_row = s.transpose_a ? 1 : s.lda;
  const int64_t a_k = s.transpose_a ? s.lda : 1;
  const int64_t b_column = s.transpose_b ? s.ldb : 1;
  const int64_t b_k = s.transpose_b ? 1 : s.ldb;
  const float* a = static_cast<const float*>(s.a) + i * a_row;
  const float* b = static_cast<const float*>(s.b) + j * b_column;
  float* c = static_cast<float*>(s.c) + i * s.ldc + j;
  Start(s, i, j, rows, columns);
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
                        .c = c + row * s.ldc + column,
                        .ldc = s.ldc,
                        .accumulate = true});
      }
    }
  }
}

}  // namespace

void Matmul(Stream&, const MatmulArgs& s) {
  const int64_t down = (s.m + kBlockRows - 1) / kBlockRows;
  const int64_t across = (s.n + kBlockColumns - 1) / kBlockColumns;
#pragma omp parallel for schedule( \
    dynamic, 1) if (down * across > 1 && s.m * s.n * s.k > kParallelProducts)
  for (int64_t block = 0; block < down * across; ++block) {
    Panels panels;
    Block(s, block % down * kBlockRows, block / down * kBlockColumns, &panels);
  }
}

}  // namespace delink::cpu::DELINK_SIMD
