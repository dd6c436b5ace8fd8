// Adafactor on the CPU. Sums have fixed lanes, so that the compiler may use
// vectors of any width.
#include <algorithm>
#include <cmath>

#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/elementwise.h"

namespace delink::cpu {
namespace {

constexpr int64_t kLanes = 16;

// A sum in the order of sum_squares.
struct LaneSum {
  double lanes[kLanes] = {};

  // Adds value(i) for i < n; n is a multiple of kLanes except in the last call.
  template <typename Value>
  [[gnu::always_inline]] void Add(int64_t n, const Value& value) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += value(i + lane);
      }
    }
    for (int64_t lane = 0; i + lane < n; ++lane) lanes[lane] += value(i + lane);
  }
  double Total() const {
    double sum = 0;
    for (int64_t lane = 0; lane < kLanes / 2; ++lane) {
      sum += lanes[lane] + lanes[lane + kLanes / 2];
    }
    return sum;
  }
};
static_assert(kGradientTile % kLanes == 0 &&
              kAdafactorRun % kGradientTile == 0);

// g', a tile at a time.
template <typename T>
struct ClippedGradient {
  Gradient<T> gradient;
  GradientScale<T> clip;

  // visit(at, n, tile) for the elements [at, at + n) of [begin, end).
  template <typename Visit>
  [[gnu::always_inline]] void ForTiles(int64_t begin, int64_t end,
                                       const Visit& visit) const {
    T tile[kGradientTile];
    for (int64_t at = begin; at < end; at += kGradientTile) {
      const int64_t n = end - at < kGradientTile ? end - at : kGradientTile;
      gradient.Load(at, n, tile, clip);
      visit(at, n, tile);
    }
  }
};

double InOrder(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

// b of the step: 1 - beta2 of the paper, which is 1 at first.
double RestOf(const AdafactorArgs& a) {
  return std::pow(static_cast<double>(a.update), -0.8);
}

template <typename T>
struct Estimate {
  ClippedGradient<T> g;
  const T* row;
  const T* column;
  T* v;
  T rest, mean, floor;

  explicit Estimate(const AdafactorArgs& a)
      : g{{a.params.g, a.params.bf16_g}, GradientScale<T>(*a.params.control)},
        row(static_cast<const T*>(a.row)),
        column(static_cast<const T*>(a.column)),
        v(static_cast<T*>(a.v)),
        rest(static_cast<T>(RestOf(a))),
        mean(a.columns > 0 ? std::max(static_cast<T>(*a.mean),
                                      static_cast<T>(a.eps * a.eps))
                           : T{1}),
        floor(static_cast<T>(a.eps * a.eps)) {}

  [[gnu::always_inline]] T Scaled(T gi, T vi) const {
    return gi / std::sqrt(vi < floor ? floor : vi);
  }
  // u of element j of row i, of which `of_row` is r_i / mean.
  [[gnu::always_inline]] T InRow(T gi, T of_row, int64_t j) const {
    return Scaled(gi, of_row * column[j]);
  }
  T OfRow(int64_t i) const { return row[i] / mean; }
  [[gnu::always_inline]] void UpdateV(T gi, int64_t i) const {
    v[i] = v[i] + rest * (gi * gi - v[i]);
  }
  [[gnu::always_inline]] T InVector(T gi, int64_t i) const {
    return Scaled(gi, v[i]);
  }
};

template <typename T>
struct VectorStep {
  Estimate<T> e;
  T shrink, step;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end, T* __restrict p,
                                  const T* __restrict g) const {
    const VectorStep b = *this;
    for (int64_t i = begin; i < end; ++i) {
      const T u = b.e.InVector(b.e.g.clip(g[i - begin]), i);
      p[i - begin] = p[i - begin] * b.shrink + b.step * u;
    }
  }
};

template <typename T>
struct MatrixStep {
  Estimate<T> e;
  int64_t columns;
  T shrink, step;

  [[gnu::always_inline]] void Run(int64_t begin, int64_t end, T* __restrict p,
                                  const T* __restrict g) const {
    const MatrixStep b = *this;
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / b.columns, first = row * b.columns;
      const int64_t next = std::min(end, first + b.columns);
      const T of_row = b.e.OfRow(row);
      for (int64_t i = at; i < next; ++i) {
        const T u = b.e.InRow(b.e.g.clip(g[i - begin]), of_row, i - first);
        p[i - begin] = p[i - begin] * b.shrink + b.step * u;
      }
      at = next;
    }
  }
};

}  // namespace

template <typename T>
void ColumnSquares(Stream& stream, const ColumnSquaresArgs& a) {
  const ClippedGradient<T> g{{a.g, a.bf16_g}, GradientScale<T>(*a.control)};
  const int64_t runs = (a.rows + kColumnRun - 1) / kColumnRun;
  OverThreads(PoolOf(stream), runs, a.rows * a.columns > 32768,
              [&](int64_t run) {
                double* const sums = a.partial + run * a.columns;
                std::fill(sums, sums + a.columns, 0.0);
                const int64_t end = std::min((run + 1) * kColumnRun, a.rows);
                for (int64_t r = run * kColumnRun; r < end; ++r) {
                  const int64_t first = r * a.columns;
                  g.ForTiles(first, first + a.columns,
                             [&](int64_t at, int64_t n, const T* tile) {
                               double* const to = sums + (at - first);
                               for (int64_t c = 0; c < n; ++c) {
                                 const double value = tile[c];
                                 to[c] += value * value;
                               }
                             });
                }
              });
  for (int64_t c = 0; c < a.columns; ++c) {
    double sum = a.accumulate ? a.sums[c] : 0;
    for (int64_t run = 0; run < runs; ++run) {
      sum += a.partial[run * a.columns + c];
    }
    a.sums[c] = sum;
  }
}

template <typename T>
void AdafactorFactors(Stream&, const AdafactorArgs& a) {
  if (a.params.control->skip != 0) return;
  const T rest = static_cast<T>(RestOf(a));
  T* const row = static_cast<T*>(a.row);
  T* const column = static_cast<T*>(a.column);
  for (int64_t i = 0; i < a.rows; ++i) {
    const T mean =
        static_cast<T>(a.row_sums[i] / static_cast<double>(a.whole_columns()));
    row[i] = row[i] + rest * (mean - row[i]);
  }
  for (int64_t j = 0; j < a.columns; ++j) {
    const T mean =
        static_cast<T>(a.column_sums[j] / static_cast<double>(a.whole_rows()));
    column[j] = column[j] + rest * (mean - column[j]);
  }
  const bool has_rows = a.rows == a.whole_rows();
  const T* const factors = has_rows ? row : column;
  const int64_t count = has_rows ? a.rows : a.columns;
  LaneSum sum;
  sum.Add(count, [&](int64_t i) { return double{factors[i]}; });
  *a.mean = sum.Total() / static_cast<double>(count);
}

template <typename T>
void AdafactorSums(Stream& stream, const AdafactorArgs& a) {
  if (a.params.control->skip != 0) return;
  const Estimate<T> e(a);
  if (a.columns == 0) {
    for (int64_t run = 0; run < a.sums(); ++run) {
      LaneSum sum;
      e.g.ForTiles(run * kAdafactorRun,
                   std::min((run + 1) * kAdafactorRun, a.rows),
                   [&](int64_t at, int64_t n, const T* g) {
                     for (int64_t i = 0; i < n; ++i) e.UpdateV(g[i], at + i);
                     sum.Add(n, [&](int64_t i) {
                       const double u = e.InVector(g[i], at + i);
                       return u * u;
                     });
                   });
      a.u_sums[run] = sum.Total();
    }
    return;
  }
  OverThreads(
      PoolOf(stream), a.rows, a.rows * a.columns > 32768, [&](int64_t i) {
        const T of_row = e.OfRow(i);
        const int64_t first = i * a.columns;
        LaneSum sum;
        e.g.ForTiles(first, first + a.columns,
                     [&](int64_t at, int64_t n, const T* g) {
                       sum.Add(n, [&](int64_t j) {
                         const double u = e.InRow(g[j], of_row, at - first + j);
                         return u * u;
                       });
                     });
        a.u_sums[i] = sum.Total();
      });
}

template <typename T>
void AdafactorTotals(Stream&, const AdafactorArgs& a) {
  if (a.params.control->skip != 0) return;
  a.totals[0] += InOrder(a.u_sums, a.sums());
  if (a.relative) a.totals[1] += InOrder(a.p_sums, a.p_count);
}

template <typename T>
void AdafactorStep(Stream& stream, const AdafactorArgs& a) {
  const UpdatedParams& params = a.params;
  const UpdateControl& control = *params.control;
  if (control.skip != 0) return;
  const double lr = control.lr * params.lr_scale;
  const auto n = static_cast<double>(a.whole_elements());
  const bool all = a.totals == nullptr;
  double alpha = lr;
  if (a.relative) {
    const double squares = all ? InOrder(a.p_sums, a.p_count) : a.totals[1];
    const double root = std::sqrt(squares) / std::sqrt(n);
    alpha = std::max(1e-3, root) *
            std::min(lr, 1 / std::sqrt(static_cast<double>(a.update)));
  }
  const double squares = all ? InOrder(a.u_sums, a.sums()) : a.totals[0];
  const double u = std::sqrt(squares) / std::sqrt(n);
  *a.step = alpha / std::max(1.0, u);
  const Estimate<T> e(a);
  const T shrink = static_cast<T>(1 - lr * params.decay);
  const T step = static_cast<T>(-*a.step);
  if (a.columns == 0) {
    RunUpdate<T>(stream, VectorStep<T>{e, shrink, step}, params);
  } else {
    RunUpdate<T>(stream, MatrixStep<T>{e, a.columns, shrink, step}, params);
  }
}

DELINK_OPTIM_INSTANTIATE(ColumnSquares, ColumnSquaresArgs);
DELINK_OPTIM_INSTANTIATE(AdafactorFactors, AdafactorArgs);
DELINK_OPTIM_INSTANTIATE(AdafactorSums, AdafactorArgs);
DELINK_OPTIM_INSTANTIATE(AdafactorTotals, AdafactorArgs);
DELINK_OPTIM_INSTANTIATE(AdafactorStep, AdafactorArgs);

}  // namespace delink::cpu
