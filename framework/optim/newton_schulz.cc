#include "framework/optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "framework/optim/kernels.h"
#include "framework/optim/updated.h"

namespace delink {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr int kNewtonSchulzSteps = 5;
constexpr int64_t kNormBlock = 4096;  // elements

}  // namespace

OrthogonalMemory::OrthogonalMemory(char* memory, int64_t rows, int64_t columns,
                                   const ParamStore& store, int slab,
                                   int64_t gathered) {
  const DType dtype = store.dtype(slab, Plane::kWeight);
  const auto take = [&](int64_t size) {
    char* const at = memory + bytes;
    bytes += AlignUp(size);
    return at;
  };
  const int64_t elements = rows * columns;
  const int64_t all = elements * SizeOf(dtype);
  const int64_t least = std::min(rows, columns);
  const int64_t square = least * least * SizeOf(dtype);
  const int64_t exact = SizeOf(StatisticsOf(dtype));
  x = take(std::max(all, gathered * exact));
  if (HasBf16Gradients(store, slab) || gathered > 0) {
    // Read for the last time before y is written.
    u = take(elements * exact);
    y = u;
  } else {
    y = take(all);
  }
  gram = take(square);
  poly = take(square);
  sums = reinterpret_cast<double*>(
      take((elements + kNormBlock - 1) / kNormBlock * 8));
  scale = reinterpret_cast<double*>(take(8));
}

const void* MakeOrthogonal(Stream& stream, const ParamStore& store, int slab,
                           int64_t rows, int64_t columns,
                           const OrthogonalMemory& at, const void* u,
                           MatrixProductFn multiply) {
  const OptimKernels& kernels = KernelsFor(store);
  const bool narrow = IsNarrow(store, slab);
  const int64_t n = rows * columns;
  kernels.sum_squares(stream,
                      {.x = u, .n = n, .block = kNormBlock, .sums = at.sums});
  kernels.muon_normalize(stream, {.u = u,
                                  .x = at.x,
                                  .narrow = narrow,
                                  .n = n,
                                  .sums = at.sums,
                                  .count = (n + kNormBlock - 1) / kNormBlock,
                                  .scale = at.scale});
  const bool wide = rows <= columns;
  const int64_t least = wide ? rows : columns;
  const int64_t most = wide ? columns : rows;
  const auto product = [&](MatrixProduct of) {
    of.dtype = store.dtype(slab, Plane::kWeight);
    multiply(store.device(), stream, of);
  };
  const auto combine = [&](const void* x, void* y, int64_t count, double a,
                           double b) {
    kernels.scale_add(
        stream, {.x = x, .y = y, .narrow = narrow, .n = count, .a = a, .b = b});
  };
  char *x = at.x, *y = at.y;
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    // With x wide, A = x x^T and x = a x + (b A + c A A) x; else with x^T.
    product({.m = least,
             .n = least,
             .k = most,
             .transpose_a = !wide,
             .transpose_b = wide,
             .a = x,
             .b = x,
             .c = at.gram});
    product({.m = least,
             .n = least,
             .k = least,
             .a = at.gram,
             .b = at.gram,
             .c = at.poly});
    combine(at.gram, at.poly, least * least, kB, kC);
    product({.m = rows,
             .n = columns,
             .k = least,
             .a = wide ? at.poly : x,
             .b = wide ? x : at.poly,
             .c = y});
    combine(x, y, n, kA, 1);
    std::swap(x, y);
  }
  return x;
}

}  // namespace delink
