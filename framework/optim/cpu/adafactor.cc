// Adafactor on the CPU. Sums have fixed lanes, so that the compiler may take
// vectors of any width.
#include <algorithm>
#include <cmath>

#include "framework/optim/cpu/cpu_kernels.h"
#include "framework/optim/cpu/elementwise.h"

namespace delink::cpu {
namespace {

constexpr int64_t kLanes = 16;

// value(i) for i in [begin, end), as sum_squares adds them.
template <typename Value>
[[gnu::always_inline]] inline double LaneSum(int64_t begin, int64_t end,
                                             const Value& value) {
  double lanes[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += value(i + lane);
    }
  }
  for (int64_t lane = 0; i + lane < end; ++lane) lanes[lane] += value(i + lane);
  double sum = 0;
  for (int64_t lane = 0; lane < kLanes / 2; ++lane) {
    sum += lanes[lane] + lanes[lane + kLanes / 2];
  }
  return sum;
}

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
  const T* g;
  const T* row;
  const T* column;
  T* v;
  T rest, mean, floor;

  explicit Estimate(const AdafactorArgs& a)
      : g(static_cast<const T*>(a.params.g)),
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
  [[gnu::always_inline]] T InRow(const T* g_row, T of_row, int64_t j) const {
    return Scaled(g_row[j], of_row * column[j]);
  }
  T OfRow(int64_t i) const { return row[i] / mean; }
  [[gnu::always_inline]] void UpdateV(int64_t i) const {
    v[i] = v[i] + rest * (g[i] * g[i] - v[i]);
  }
  [[gnu::always_inline]] T InVector(int64_t i) const {
    return Scaled(g[i], v[i]);
  }
};

template <typename T>
struct VectorStep {
  const Estimate<T>& e;
  T shrink, step;

  template <typename W>
  void Run(const Target<T, W>& target, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      target.Store(i, target.p[i] * shrink + step * e.InVector(i));
    }
  }
};

template <typename T, typename W>
struct RowBody {
  Target<T, W> target;
  Estimate<T> e;
  const T* g_row;
  int64_t first;  // element of the row's begin
  T of_row, shrink, step;

  [[gnu::always_inline]] void operator()(int64_t begin, int64_t end) const {
    const RowBody b = *this;
    for (int64_t j = begin; j < end; ++j) {
      const int64_t i = b.first + j;
      b.target.Store(i, b.target.p[i] * b.shrink +
                            b.step * b.e.InRow(b.g_row, b.of_row, j));
    }
  }
};

}  // namespace

template <typename T>
void ColumnSquares(Stream&, const ColumnSquaresArgs& a) {
  const T* const x = static_cast<const T*>(a.x);
  const int64_t runs = (a.rows + kColumnRun - 1) / kColumnRun;
#pragma omp parallel for schedule(static) if (a.rows * a.columns > 32768)
  for (int64_t run = 0; run < runs; ++run) {
    double* const sums = a.partial + run * a.columns;
    std::fill(sums, sums + a.columns, 0.0);
    const int64_t end = std::min((run + 1) * kColumnRun, a.rows);
    for (int64_t r = run * kColumnRun; r < end; ++r) {
      const T* const row = x + r * a.columns;
      for (int64_t c = 0; c < a.columns; ++c) {
        const double value = row[c];
        sums[c] += value * value;
      }
    }
  }
  for (int64_t c = 0; c < a.columns; ++c) {
    double sum = 0;
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
        static_cast<T>(a.row_sums[i] / static_cast<double>(a.columns));
    row[i] = row[i] + rest * (mean - row[i]);
  }
  for (int64_t j = 0; j < a.columns; ++j) {
    const T mean =
        static_cast<T>(a.column_sums[j] / static_cast<double>(a.rows));
    column[j] = column[j] + rest * (mean - column[j]);
  }
  *a.mean = LaneSum(0, a.rows, [&](int64_t i) { return double{row[i]}; }) /
            static_cast<double>(a.rows);
}

template <typename T>
void AdafactorSums(Stream&, const AdafactorArgs& a) {
  if (a.params.control->skip != 0) return;
  const Estimate<T> e(a);
  if (a.columns == 0) {
    for (int64_t i = 0; i < a.rows; ++i) e.UpdateV(i);
    for (int64_t run = 0; run < a.sums(); ++run) {
      a.u_sums[run] =
          LaneSum(run * kAdafactorRun,
                  std::min((run + 1) * kAdafactorRun, a.rows), [&](int64_t i) {
                    const double u = e.InVector(i);
                    return u * u;
                  });
    }
    return;
  }
#pragma omp parallel for schedule(static) if (a.rows * a.columns > 32768)
  for (int64_t i = 0; i < a.rows; ++i) {
    const T* const g_row = e.g + i * a.columns;
    const T of_row = e.OfRow(i);
    a.u_sums[i] = LaneSum(0, a.columns, [&](int64_t j) {
      const double u = e.InRow(g_row, of_row, j);
      return u * u;
    });
  }
}

template <typename T>
void AdafactorStep(Stream&, const AdafactorArgs& a) {
  const UpdatedParams& params = a.params;
  const UpdateControl& control = *params.control;
  if (control.skip != 0) return;
  const double lr = control.lr * params.lr_scale;
  const auto n = static_cast<double>(params.n);
  double alpha = lr;
  if (a.relative) {
    const double root = std::sqrt(InOrder(a.p_sums, a.p_count)) / std::sqrt(n);
    alpha = std::max(1e-3, root) *
            std::min(lr, 1 / std::sqrt(static_cast<double>(a.update)));
  }
  const double u = std::sqrt(InOrder(a.u_sums, a.sums())) / std::sqrt(n);
  *a.step = alpha / std::max(1.0, u);
  const Estimate<T> e(a);
  const T shrink = static_cast<T>(1 - lr * params.decay);
  const T step = static_cast<T>(-*a.step);
  WithTarget<T>(params, [&]<typename W>(const Target<T, W>& target) {
    if (a.columns == 0) {
      return VectorStep<T>{.e = e, .shrink = shrink, .step = step}.Run(target,
                                                                       a.rows);
    }
    static const Instructions best = BestInstructions();
#pragma omp parallel for schedule(static) if (params.n > kElementsAtOnce)
    for (int64_t i = 0; i < a.rows; ++i) {
      const RowBody<T, W> body = {.target = target,
                                  .e = e,
                                  .g_row = e.g + i * a.columns,
                                  .first = i * a.columns,
                                  .of_row = e.OfRow(i),
                                  .shrink = shrink,
                                  .step = step};
      By(best, body, 0, a.columns);
    }
  });
}

template void ColumnSquares<float>(Stream&, const ColumnSquaresArgs&);
template void ColumnSquares<double>(Stream&, const ColumnSquaresArgs&);
template void AdafactorFactors<float>(Stream&, const AdafactorArgs&);
template void AdafactorFactors<double>(Stream&, const AdafactorArgs&);
template void AdafactorSums<float>(Stream&, const AdafactorArgs&);
template void AdafactorSums<double>(Stream&, const AdafactorArgs&);
template void AdafactorStep<float>(Stream&, const AdafactorArgs&);
template void AdafactorStep<double>(Stream&, const AdafactorArgs&);

}  // namespace delink::cpu
