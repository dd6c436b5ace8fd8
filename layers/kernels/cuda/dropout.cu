#include <algorithm>

#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/dropout.cuh"

namespace delink::cuda {
namespace {

// Uniform(word) >= rate means that the word's upper 24 bits are at least this.
uint32_t Threshold(float rate) {
  const float steps = rate * 0x1p24F;
  const auto whole = static_cast<uint32_t>(steps);
  return whole + (static_cast<float>(whole) < steps ? 1 : 0);
}

template <typename D>
void DropoutRows(Stream& stream, const DropoutArgs& s,
                 const DropoutPlan& plan) {
  const int64_t rows = s.rows < 0 ? s.B * s.T : s.rows;
  if (rows == 0) return;
  const bool packed = CanPack<D>(s.x, s.D) && CanPack<D>(s.y, s.D) &&
                      s.row_stride() % Pack<D>::kSize == 0 &&
                      s.all_columns() % Pack<D>::kSize == 0 &&
                      s.first_column % Pack<D>::kSize == 0;
  // One more where a token's elements begin inside a group.
  const int64_t groups = s.D / Pack<D>::kSize + (packed ? 0 : 2);
  unsigned x = 1;
  while (x < kDropoutThreads && x < groups) x *= 2;
  const unsigned y = kDropoutThreads / x;
  Launch(packed ? &DropoutRowsKernel<D, true> : &DropoutRowsKernel<D, false>,
         dim3(static_cast<unsigned>((rows + y - 1) / y)), dim3(x, y), 0, stream,
         s, plan, rows);
}

}  // namespace

template <typename T>
void Dropout(Stream& stream, const DropoutArgs& s) {
  using D = DeviceType<T>;
  constexpr int64_t kSize = Pack<D>::kSize;
  if (s.B * s.T * s.D == 0) return;
  const int64_t first = s.first_position * s.D;
  DropoutPlan plan = {
      .size = s.T * s.D,
      .skip = first % kSize,
      .counter = static_cast<uint64_t>((first - first % kSize) / 4),
      .blocks = 0,
      .threshold = Threshold(static_cast<float>(s.rate)),
      .scale = static_cast<float>(1.0 / (1.0 - s.rate))};
  if (s.places != nullptr || s.rows >= 0 || s.width > 0) {
    return DropoutRows<D>(stream, s, plan);
  }
  const bool packed = plan.skip == 0 && CanPack<D>(s.x, plan.size) &&
                      CanPack<D>(s.y, plan.size);
  const int64_t groups = (plan.skip + plan.size + kSize - 1) / kSize;
  const int64_t warps =
      (groups + kDropoutGroups * 32 - 1) / (kDropoutGroups * 32);
  const int64_t threads = std::min<int64_t>(warps * 32, kDropoutThreads);
  const int64_t per_block = threads * kDropoutGroups;
  plan.blocks = static_cast<unsigned>((groups + per_block - 1) / per_block);
  Launch(packed ? &DropoutKernel<D, true> : &DropoutKernel<D, false>,
         dim3(static_cast<unsigned>(s.B * plan.blocks)),
         dim3(static_cast<unsigned>(threads)), 0, stream, s, plan);
}

template void Dropout<float>(Stream&, const DropoutArgs&);
template void Dropout<BFloat16>(Stream&, const DropoutArgs&);

}  // namespace delink::cuda
