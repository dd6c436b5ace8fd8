#include "framework/device/cuda/scratch.h"
#include "layers/kernels/cuda/cross_entropy.cuh"
#include "layers/kernels/cuda/cuda.h"

namespace delink::cuda {
namespace {

// A block for a row.
template <typename D>
dim3 ThreadsFor(int64_t V) {
  const int64_t packs = V / Pack<D>::kSize;
  constexpr int64_t kEach = int64_t{kWarp} * kPacksAhead;
  const int64_t warps = std::max<int64_t>(1, (packs + kEach - 1) / kEach);
  return dim3(static_cast<unsigned>(
      std::min<int64_t>(warps * kWarp, kCrossEntropyThreads)));
}

void AddLosses(Stream& stream, const CrossEntropyArgs& s) {
  const unsigned sums = s.z_weight != 0 ? 2 : 1;
  Launch(SumLosses, dim3(1), dim3(sums * kWarp), 0, stream, s);
}

}  // namespace

template <typename T>
void CrossEntropy(Stream& stream, const CrossEntropyArgs& s) {
  using D = DeviceType<T>;
  if (s.N == 0 || s.V == 0) return;
  // Of a row, in shared memory.
  const int64_t kept =
      s.want_grad ? std::min(s.V / Pack<D>::kSize, kMostSharedBytes / 16) : 0;
  Launch(CrossEntropyRows<D>, dim3(static_cast<unsigned>(s.N)),
         ThreadsFor<D>(s.V), kept * 16, stream, s, static_cast<int>(kept));
  AddLosses(stream, s);
}

template <typename T>
void VocabMax(Stream& stream, const VocabMaxArgs& s) {
  using D = DeviceType<T>;
  if (s.N == 0) return;
  Launch(VocabMaxRows<D>, dim3(static_cast<unsigned>(s.N)), ThreadsFor<D>(s.V),
         0, stream, s);
}

template <typename T>
void VocabSums(Stream& stream, const VocabSumsArgs& s) {
  using D = DeviceType<T>;
  if (s.N == 0) return;
  Launch(VocabSumsRows<D>, dim3(static_cast<unsigned>(s.N)), ThreadsFor<D>(s.V),
         0, stream, s);
}

template <typename T>
void VocabCrossEntropy(Stream& stream, const VocabCrossEntropyArgs& s) {
  using D = DeviceType<T>;
  if (s.N == 0) return;
  Launch(VocabCrossEntropyRows<D>, dim3(static_cast<unsigned>(s.N)),
         ThreadsFor<D>(s.V), 0, stream, s);
  if (!s.counts) return;
  AddLosses(stream, {.N = s.N,
                     .targets = s.targets,
                     .ignore_index = s.ignore_index,
                     .row_loss = s.row_loss,
                     .loss_sum = s.loss_sum,
                     .count = s.count,
                     .z_weight = s.z_weight,
                     .row_z = s.row_z,
                     .z_sum = s.z_sum});
}

#define DELINK_INSTANTIATE(T)                                      \
  template void CrossEntropy<T>(Stream&, const CrossEntropyArgs&); \
  template void VocabMax<T>(Stream&, const VocabMaxArgs&);         \
  template void VocabSums<T>(Stream&, const VocabSumsArgs&);       \
  template void VocabCrossEntropy<T>(Stream&, const VocabCrossEntropyArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cuda
