#include "framework/optim/slab_optimizer.h"

#include <cmath>

#include "framework/base/at.h"
#include "framework/optim/find_kernels.h"

namespace delink {
namespace {

const OptimKernels& KernelsOf(const Device& device, DType dtype) {
  const OptimKernels* const kernels = FindOptimKernels(device.kind(), dtype);
  DELINK_CHECK(kernels != nullptr)
      << "no optimizer for " << ToString(dtype) << " on " << device.name();
  return *kernels;
}

}  // namespace

void SumSquares(Stream& stream, const ParamStore& store, int slab, Range owned,
                double* sums, Plane plane) {
  const Slab& s = store.slab(slab);
  DELINK_CHECK(owned.size() == 0 || owned.begin % s.block == 0)
      << "a range of " << s.name << " that begins inside a block";
  DELINK_CHECK(owned.end % s.block == 0 || owned.end == s.elements)
      << "a range of " << s.name << " that ends inside a block";
  const int64_t first = owned.begin / s.block;
  const int64_t last = (owned.end + s.block - 1) / s.block;
  Device& device = store.device();
  constexpr int64_t kSize = sizeof(double);
  if (owned.size() == 0) {
    device.FillZero(stream, sums, s.blocks() * kSize);
    return;
  }
  device.FillZero(stream, sums, first * kSize);
  device.FillZero(stream, sums + last, (s.blocks() - last) * kSize);
  SumSquaresArgs args{
      .n = owned.size(), .block = s.block, .sums = sums + first};
  void* const from = store.at(slab, plane, owned.begin);
  const bool rounded = store.dtype(slab, plane) == DType::kBF16;
  if (rounded) {
    args.w = static_cast<const uint16_t*>(from);
    if (plane == Plane::kWeight && store.has(slab, Plane::kLow)) {
      args.low = static_cast<const uint16_t*>(
          store.at(slab, Plane::kLow, owned.begin));
    }
  } else {
    args.x = from;
  }
  KernelsOf(device, rounded ? DType::kF32 : store.dtype(slab, plane))
      .sum_squares(stream, args);
}

void FinishNorm(Stream& stream, Device& device, const double* sums, int64_t n,
                UpdateControl* control) {
  KernelsOf(device, DType::kF32)
      .finish_norm(stream, {.sums = sums, .n = n, .control = control});
}

void WriteTail(Stream& stream, Device& device, const SumsTailArgs& args) {
  KernelsOf(device, DType::kF32).sums_tail(stream, args);
}

int FirstNonFiniteSlab(const Layout& layout, std::span<const double> sums) {
  for (size_t s = 0; s < layout.slabs().size(); ++s) {
    const Range cells = layout.CellsOfLogical(static_cast<int>(s));
    for (int64_t i = cells.begin; i < cells.end; ++i) {
      if (!std::isfinite(At(sums, i))) return static_cast<int>(s);
    }
  }
  return -1;
}

}  // namespace delink
