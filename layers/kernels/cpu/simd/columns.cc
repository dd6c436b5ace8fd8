#include "layers/kernels/cpu/simd/columns.h"

#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kRowBlock = 64;  // summed on its own, so that rounding stays
                                   // that of N / 64 + 64 additions, not N
// Columns that are summed together: few enough that their sums stay in the
// nearest cache, and enough to read memory in long pieces.
constexpr int64_t kColumnBlock = 1024;

struct Partial {
  float dw[kColumnBlock];
  float db[kColumnBlock];
};

// Adds kRows rows from n on, in order. Several at once, because loading and
// storing a sum takes as long as adding a row to it.
template <int kRows, typename T>
void AddRows(const ColumnSums<T>& s, int64_t n, int64_t first, int64_t columns,
             float* db) {
  const T* dy = s.dy + n * s.D + first;
  ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
    Vec sum = load(db);
    for (int r = 0; r < kRows; ++r) sum += load(dy + r * s.D);
    store(db, sum);
  });
}

// Prefetches the same columns of the next rows, since a row's piece ends before
// the processor has detected the pattern.
template <int kRows, typename T>
DELINK_INLINE void FetchNext(const T* rows, int64_t D) {
  for (int r = kRows; r < 2 * kRows; ++r) __builtin_prefetch(rows + r * D);
}

template <int kRows, typename T>
void AddNormRows(const ColumnSums<T>& s, int64_t n, int64_t first,
                 int64_t columns, Partial* block) {
  const T* dy = s.dy + n * s.D + first;
  const T* x = s.x + n * s.D + first;
  Vec mean[kRows], rstd[kRows];
  for (int r = 0; r < kRows; ++r) {
    mean[r] = Set(s.mean != nullptr ? s.mean[n + r] : 0.0F);
    rstd[r] = Set(s.rstd[n + r]);
  }
  int64_t d = 0;
  ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
    FetchNext<kRows>(dy + d, s.D);
    FetchNext<kRows>(x + d, s.D);
    d += kWidth;
    Vec dw = load(block->dw), db = load(block->db);
    for (int r = 0; r < kRows; ++r) {
      const Vec g = load(dy + r * s.D);
      db += g;
      dw = Fma(g, (load(x + r * s.D) - mean[r]) * rstd[r], dw);
    }
    store(block->dw, dw);
    store(block->db, db);
  });
}

// Rows [begin, end).
template <typename T>
void AddBlock(const ColumnSums<T>& s, int64_t begin, int64_t end, int64_t first,
              int64_t columns, Partial* block) {
  int64_t n = begin;
  if (s.dw == nullptr) {
    for (; n + 8 <= end; n += 8) AddRows<8>(s, n, first, columns, block->db);
    for (; n < end; ++n) AddRows<1>(s, n, first, columns, block->db);
    return;
  }
  for (; n + 4 <= end; n += 4) AddNormRows<4>(s, n, first, columns, block);
  for (; n < end; ++n) AddNormRows<1>(s, n, first, columns, block);
}

void AddPartial(int64_t columns, const float* from, float* to) {
  ForRow(columns, [&](auto load, auto store)
                      DELINK_LAMBDA { store(to, load(to) + load(from)); });
}

void Finish(int64_t columns, const float* total, bool accumulate, float* out) {
  if (out == nullptr) return;
  if (accumulate) {
    AddPartial(columns, total, out);
  } else {
    std::memcpy(out, total, columns * sizeof(float));
  }
}

template <typename T>
void SumBlock(const ColumnSums<T>& s, int64_t first, int64_t columns) {
  Partial total, block;
  const int64_t bytes = columns * static_cast<int64_t>(sizeof(float));
  std::memset(total.dw, 0, bytes);
  std::memset(total.db, 0, bytes);
  for (int64_t n0 = 0; n0 < s.N; n0 += kRowBlock) {
    std::memset(block.dw, 0, bytes);
    std::memset(block.db, 0, bytes);
    const int64_t end = n0 + kRowBlock < s.N ? n0 + kRowBlock : s.N;
    AddBlock(s, n0, end, first, columns, &block);
    AddPartial(columns, block.dw, total.dw);
    AddPartial(columns, block.db, total.db);
  }
  Finish(columns, total.dw, s.accumulate,
         s.dw != nullptr ? s.dw + first : nullptr);
  Finish(columns, total.db, s.accumulate,
         s.db != nullptr ? s.db + first : nullptr);
}

}  // namespace

// Threads share the columns, in whole vectors. Any thread sums a column in the
// order of the rows.
template <typename T>
void SumColumns(const ColumnSums<T>& s) {
  const int64_t vectors = (s.D + kWidth - 1) / kWidth;
  const int64_t parts = s.N * s.D > kParallelFrom ? MaxThreads() : 1;
#pragma omp parallel for schedule(static) if (parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t whole_end = vectors * (part + 1) / parts * kWidth;
    const int64_t end = whole_end < s.D ? whole_end : s.D;
    for (int64_t first = vectors * part / parts * kWidth; first < end;
         first += kColumnBlock) {
      const int64_t rest = end - first;
      SumBlock(s, first, rest < kColumnBlock ? rest : kColumnBlock);
    }
  }
}

template void SumColumns<float>(const ColumnSums<float>&);
template void SumColumns<BFloat16>(const ColumnSums<BFloat16>&);

}  // namespace delink::cpu::DELINK_SIMD
