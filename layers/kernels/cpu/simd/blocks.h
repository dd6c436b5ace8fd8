// The partition of a matrix product. A task is a block of C. It copies its
// parts of A and B into panels, a slice of k at a time, and a Core multiplies a
// panel of A by one of B. A Core has
//   Element                         of a panel
//   kRows, kColumns                 of a panel of A and of B
//   kBlockRows                      most rows of a block, a multiple of kRows
//   kStep, kSlice                   k is copied in whole steps, slices are too
//   kCopyA, kCopyB                  the time in which an element is copied, in
//                                   multiply-adds
//   Pack<is A>                      (from, stride, k_stride, count, k, to)
//   RowsInPlace<T>                  (args, rows): how many rows of A, of type
//                                   T, are read without a copy
//   Multiply(Panel)                 also fetches the panel's lines
//   Scope                           lives while a block is multiplied
// An element of C is one chain of sums in the order of k; its links are steps
// counted from k = 0. So its bits depend only on its row of A and column of B,
// not on the number of rows or threads or on any size below. A bf16 C is summed
// in separate f32 memory.
#pragma once

#include "layers/kernels/arguments.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cpu/simd/rows.h"
#include "layers/kernels/cpu/threads.h"

namespace delink::cpu::DELINK_SIMD {

// Bounds of a block's columns.
inline constexpr int64_t kMostColumns = 1024;
inline constexpr int64_t kMostColumnsBeside = 256;  // of C's separate memory

static inline int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t Parts(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}
// The length of the fewest parts of at most `most`, as equal as multiples of
// `unit` can be.
static inline int64_t EqualParts(int64_t size, int64_t most, int64_t unit) {
  if (size == 0) return unit;
  return Parts(Parts(size, Parts(size, most)), unit) * unit;
}

// Memory that is fetched into the cache some lines at a time: `runs` runs of
// `bytes`, `stride` bytes apart.
struct Ahead {
  static constexpr int64_t kLine = 64;
  const char* at;
  int64_t runs, bytes, stride, offset = 0;

  int64_t Lines() const { return runs * Parts(bytes, kLine); }
  void Fetch(int64_t lines) {
    for (; lines > 0 && runs > 0; --lines) {
      __builtin_prefetch(at + offset, 0, 2);
      offset += kLine;
      if (offset < bytes) continue;
      offset = 0;
      at += stride;
      --runs;
    }
  }
};

// The product of a panel of A and one of B, for `rows` by `columns` of C.
template <typename Element>
struct Panel {
  int64_t rows, columns, k;
  const Element* a;
  int64_t lda;  // of an A that is read in place; 0: it was copied
  const Element* b;
  float* c;
  int64_t ldc;
  bool accumulate;
  bool first;     // of the products that are added to these elements of C
  Ahead* ahead;   // of the next panel of B
  int64_t lines;  // of it to fetch meanwhile
  // C of the next rows, if it has not been read; a Core may fetch it otherwise.
  Ahead c_below;
};

template <typename Core>
struct Panels {
  static constexpr int64_t kSpare = 64 / sizeof(typename Core::Element);
  alignas(64)
      typename Core::Element a[Core::kBlockRows * Core::kSlice + kSpare];
  alignas(64) typename Core::Element b[Core::kColumns * Core::kSlice];
};

// A block of C while it is summed: in place if it is f32.
struct Sums {
  float* at;
  int64_t ld;
  bool started;  // holds the values before the first product
};

// Writes the values before the first product: C, bias, both or zero.
template <typename T, typename C>
static void Start(const MatmulArgs& s, int64_t i, int64_t j, int64_t rows,
                  int64_t columns, Sums sums) {
  const bool there = kIsF32<C> && s.accumulate && s.bias == nullptr;
  if (!sums.started || there) return;
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

template <typename T>
static Ahead Rows(const T* at, int64_t ld, int64_t rows, int64_t columns) {
  constexpr int64_t kSize = sizeof(T);
  return {.at = reinterpret_cast<const char*>(at),
          .runs = rows,
          .bytes = columns * kSize,
          .stride = ld * kSize};
}

// The part of B at row l and column j.
template <typename T>
static Ahead PartOfB(const MatmulArgs& s, int64_t l, int64_t j, int64_t k,
                     int64_t columns) {
  const T* at = static_cast<const T*>(s.b) +
                (s.transpose_b ? j * s.ldb + l : l * s.ldb + j);
  return s.transpose_b ? Rows(at, s.ldb, columns, k)
                       : Rows(at, s.ldb, k, columns);
}

// Rounds sums of C that have been made in separate memory.
template <typename C>
static void Round(Sums sums, int64_t rows, int64_t columns, C* to, int64_t ld) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* sum = sums.at + row * sums.ld;
    C* at = to + row * ld;
    if (row + 2 < rows) {
      const C* const later = at + 2 * ld;
      for (int64_t i = 0; i < columns; i += 64 / int64_t{sizeof(C)}) {
        __builtin_prefetch(later + i, 1);
      }
    }
    ForRow(columns,
           [&](auto load, auto store) DELINK_LAMBDA { store(at, load(sum)); });
  }
}

// The block of C at row i and column j, of `rows` and `columns`. While a panel
// is multiplied, the next one of B is fetched.
template <typename Core, typename T, typename C>
static void AddProducts(const MatmulArgs& s, int64_t i, int64_t j, int64_t rows,
                        int64_t columns, Sums sums, Panels<Core>* panels) {
  const int64_t a_row = s.transpose_a ? 1 : s.lda;
  const int64_t a_k = s.transpose_a ? s.lda : 1;
  const int64_t b_column = s.transpose_b ? s.ldb : 1;
  const int64_t b_k = s.transpose_b ? 1 : s.ldb;
  const T* a = static_cast<const T*>(s.a) + i * a_row;
  const T* b = static_cast<const T*>(s.b) + j * b_column;
  const int64_t in_place = Core::template RowsInPlace<T>(s, rows);
  const int64_t slice = EqualParts(s.k, Core::kSlice, Core::kStep);
  for (int64_t l = 0; l < s.k; l += slice) {
    const int64_t k = Smaller(slice, s.k - l);
    const int64_t copied = Parts(k, Core::kStep) * Core::kStep;
    if (in_place < rows) {
      Core::template Pack<true>(a + in_place * a_row + l * a_k, a_row, a_k,
                                rows - in_place, k, panels->a);
    }
    for (int64_t column = 0; column < columns; column += Core::kColumns) {
      const int64_t width = Smaller(Core::kColumns, columns - column);
      Core::template Pack<false>(b + column * b_column + l * b_k, b_column, b_k,
                                 width, k, panels->b);
      const int64_t next = column + width < columns ? column + width : 0;
      const int64_t next_l = next > 0 ? l : Smaller(l + k, s.k);
      Ahead ahead =
          PartOfB<T>(s, next_l, j + next, Smaller(slice, s.k - next_l),
                     Smaller(Core::kColumns, columns - next));
      const int64_t lines = Parts(ahead.Lines(), Parts(rows, Core::kRows));
      for (int64_t row = 0; row < rows; row += Core::kRows) {
        const bool copy = row >= in_place;
        const int64_t high = Smaller(Core::kRows, rows - row);
        const Sums part = {sums.at + row * sums.ld + column, sums.ld};
        const int64_t next_high = Smaller(Core::kRows, rows - row - high);
        const bool fetch = kIsF32<C> && l == 0;
        Core::Multiply(
            {.rows = high,
             .columns = width,
             .k = copied,
             .a = copy ? panels->a + (row - in_place) * copied
                       : reinterpret_cast<const typename Core::Element*>(
                             a + row * a_row + l),
             .lda = copy ? 0 : a_row,
             .b = panels->b,
             .c = part.at,
             .ldc = part.ld,
             .accumulate = l > 0 || sums.started,
             .first = l == 0,
             .ahead = &ahead,
             .lines = lines,
             .c_below = Rows(part.at + high * part.ld, part.ld,
                             fetch ? next_high : 0, width)});
      }
    }
  }
}

// How C is cut into blocks, of so many rows and columns.
struct Cut {
  int64_t rows, columns;
};

// The cut that takes a team the least time: few copies, equal shares.
template <typename Core, typename T, typename C>
static Cut CutOf(const MatmulArgs& s, int64_t products) {
  const bool copy = Core::template RowsInPlace<T>(s, Core::kRows) == 0;
  Cut best{};
  int64_t least = 0;
  for (int64_t m = Core::kBlockRows; m >= 2 * Core::kRows; m /= 2) {
    int64_t n = kIsF32<C> ? kMostColumns : kMostColumnsBeside;
    for (; n >= 2 * Core::kColumns; n /= 2) {
      const Cut cut = {EqualParts(s.m, m, Core::kRows),
                       EqualParts(s.n, n, Core::kColumns)};
      const int64_t time = cut.rows * cut.columns + Core::kCopyB * cut.columns +
                           (copy ? Core::kCopyA * cut.rows : 0);
      const int64_t blocks =
          products * Parts(s.m, cut.rows) * Parts(s.n, cut.columns);
      const int64_t team_time = Parts(blocks, MaxThreads()) * time;
      if (least == 0 || team_time < least) {
        best = cut;
        least = team_time;
      }
    }
  }
  return best;
}

template <typename Core, typename T, typename C>
static void Block(const MatmulArgs& s, int64_t i, int64_t j, Cut cut,
                  Panels<Core>* panels) {
  [[maybe_unused]] const typename Core::Scope scope;
  const int64_t rows = Smaller(cut.rows, s.m - i);
  const int64_t columns = Smaller(cut.columns, s.n - j);
  const bool started = s.accumulate || s.bias != nullptr || s.k == 0;
  C* c = static_cast<C*>(s.c) + i * s.ldc + j;
  if constexpr (kIsF32<C>) {
    const Sums sums = {c, s.ldc, started};
    Start<T, C>(s, i, j, rows, columns, sums);
    AddProducts<Core, T, C>(s, i, j, rows, columns, sums, panels);
  } else {
    alignas(64) float beside[Core::kBlockRows * kMostColumnsBeside];
    const Sums sums = {beside, kMostColumnsBeside, started};
    Start<T, C>(s, i, j, rows, columns, sums);
    AddProducts<Core, T, C>(s, i, j, rows, columns, sums, panels);
    Round(sums, rows, columns, c, s.ldc);
  }
}

// The blocks of one of `products` alike, shared by the threads of a team, which
// do not wait for each other at the end.
template <typename Core, typename T, typename C>
static void Blocks(const MatmulArgs& s, int64_t products,
                   Panels<Core>* panels) {
  const Cut cut = CutOf<Core, T, C>(s, products);
  const int64_t down = Parts(s.m, cut.rows);
  const int64_t blocks = down * Parts(s.n, cut.columns);
#pragma omp for schedule(dynamic, 1) nowait
  for (int64_t block = 0; block < blocks; ++block) {
    Block<Core, T, C>(s, block % down * cut.rows, block / down * cut.columns,
                      cut, panels);
  }
}

template <typename Core, typename T>
static void Blocks(const MatmulArgs& s, int64_t products,
                   Panels<Core>* panels) {
  if (s.c_is_gradient) {
    Blocks<Core, T, float>(s, products, panels);
  } else {
    Blocks<Core, T, T>(s, products, panels);
  }
}

template <typename Core, typename T>
static void Product(const MatmulArgs& s) {
#pragma omp parallel if (s.m * s.n * s.k > kParallelProducts)
  {
    Panels<Core> panels;
    Blocks<Core, T>(s, 1, &panels);
  }
}

template <typename Core, typename T>
static void GroupedProduct(const GroupedMatmulArgs& s) {
  const int64_t rows = s.offsets[s.E];
#pragma omp parallel if (rows * s.in * s.out > kParallelProducts)
  {
    Panels<Core> panels;
    ForEachProduct<T, float>(s, [&](const MatmulArgs& product) {
      Blocks<Core, T>(product, s.E, &panels);
    });
  }
}

}  // namespace delink::cpu::DELINK_SIMD
