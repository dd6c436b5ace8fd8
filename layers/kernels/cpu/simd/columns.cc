#include "layers/kernels/cpu/simd/columns.h"

#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {
namespace {

constexpr int64_t kRowBlock = 64;  // summed on its own, so that rounding stays
                                   // that of N / 64 + 64 additions, not N
constexpr int64_t kColumnBlock = 256;

struct Partial {
  float dw[kColumnBlock];
  float db[kColumnBlock];
};

template <typename T>
void AddRow(const ColumnSums<T>& s, int64_t n, int64_t first, int64_t columns,
            Partial* block) {
  const T* dy = s.dy + n * s.D + first;
  if (s.dw == nullptr) {
    ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
      store(block->db, load(block->db) + load(dy));
    });
    return;
  }
  const T* x = s.x + n * s.D + first;
  const float mean = s.mean != nullptr ? s.mean[n] : 0.0F;
  const float rstd = s.rstd[n];
  ForRow(columns, [&](auto load, auto store) DELINK_LAMBDA {
    const Vec g = load(dy);
    store(block->db, load(block->db) + g);
    store(block->dw, Fma(g, (load(x) - mean) * rstd, load(block->dw)));
  });
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
  std::memset(&total, 0, sizeof(total));
  for (int64_t n0 = 0; n0 < s.N; n0 += kRowBlock) {
    std::memset(&block, 0, sizeof(block));
    const int64_t end = n0 + kRowBlock < s.N ? n0 + kRowBlock : s.N;
    for (int64_t n = n0; n < end; ++n) AddRow(s, n, first, columns, &block);
    AddPartial(columns, block.dw, total.dw);
    AddPartial(columns, block.db, total.db);
  }
  Finish(columns, total.dw, s.accumulate,
         s.dw != nullptr ? s.dw + first : nullptr);
  Finish(columns, total.db, s.accumulate,
         s.db != nullptr ? s.db + first : nullptr);
}

}  // namespace

template <typename T>
void SumColumns(const ColumnSums<T>& s) {
  const int64_t blocks = (s.D + kColumnBlock - 1) / kColumnBlock;
#pragma omp parallel for schedule(static) if (s.N * s.D > kParallelFrom)
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kColumnBlock;
    const int64_t rest = s.D - first;
    SumBlock(s, first, rest < kColumnBlock ? rest : kColumnBlock);
  }
}

template void SumColumns<float>(const ColumnSums<float>&);
template void SumColumns<BFloat16>(const ColumnSums<BFloat16>&);

}  // namespace delink::cpu::DELINK_SIMD
