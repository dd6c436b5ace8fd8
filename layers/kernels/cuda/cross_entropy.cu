#include "framework/device/cuda/scratch.h"
#include "layers/kernels/cuda/cross_entropy.cuh"
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {
template <typename T>
void CrossEntropy(Stream& stream, const CrossEntropyArgs& s) {
  using D = DeviceType<T>;
  if (s.N == 0 || s.V == 0) return;
  const int64_t packs = s.V / Pack<D>::kSize;
  constexpr int64_t kEach = int64_t{kWarp} * kPacksAhead;
  const int64_t warps = std::max<int64_t>(1, (packs + kEach - 1) / kEach);
  const int64_t threads =
      std::min<int64_t>(warps * kWarp, kCrossEntropyThreads);
  // Of a row, in shared memory.
  const int64_t kept = s.want_grad ? std::min(packs, kMostSharedBytes / 16) : 0;
  Launch(CrossEntropyRows<D>, dim3(static_cast<unsigned>(s.N)),
         dim3(static_cast<unsigned>(threads)), kept * 16, stream, s,
         static_cast<int>(kept));
  const unsigned sums = s.z_weight != 0 ? 2 : 1;
  Launch(SumLosses, dim3(1), dim3(sums * kWarp), 0, stream, s);
}

template void CrossEntropy<float>(Stream&, const CrossEntropyArgs&);
template void CrossEntropy<BFloat16>(Stream&, const CrossEntropyArgs&);

}  // namespace delink::cuda
