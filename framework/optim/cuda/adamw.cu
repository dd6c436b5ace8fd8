#include <cmath>

#include "framework/optim/cuda/adamw.cuh"
#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/masters.cuh"

namespace delink::cuda {
namespace {

bool Aligned(const void* address, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

AdamWPlan PlanOf(const AdamWArgs& a) {
  const auto t = static_cast<double>(a.update);
  return {.g = static_cast<const float*>(a.g),
          .m = static_cast<float*>(a.m),
          .v = static_cast<float*>(a.v),
          .n = a.n,
          .control = a.control,
          .decay = a.decay,
          .rest1_of_t = 1 - std::pow(a.beta1, t),
          .beta1 = static_cast<float>(a.beta1),
          .rest1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .rest2 = static_cast<float>(1 - a.beta2),
          .root2 = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, t))),
          .eps = static_cast<float>(a.eps)};
}

// `aligned`: whether the master is, for four elements at a time.
template <typename Master>
void Update(Stream& stream, const AdamWArgs& a, const Master& master,
            bool aligned) {
  const bool packed =
      aligned && Aligned(a.g, 16) && Aligned(a.m, 16) && Aligned(a.v, 16);
  const int64_t each = int64_t{kAdamWThreads} * (packed ? 4 : 1);
  Launch(packed ? &AdamWKernel<4, Master> : &AdamWKernel<1, Master>,
         dim3(static_cast<unsigned>((a.n + each - 1) / each)),
         dim3(kAdamWThreads), 0, stream, PlanOf(a), master);
}

}  // namespace

void AdamW(Stream& stream, const AdamWArgs& a) {
  const WholeMaster master = {.p = static_cast<float*>(a.p),
                              .w = static_cast<uint16_t*>(a.w)};
  Update(stream, a, master, Aligned(a.p, 16) && Aligned(a.w, 8));
}

void AdamWSplit(Stream& stream, const AdamWSplitArgs& a) {
  const HalvesMaster master = {.w = static_cast<uint16_t*>(a.adamw.w),
                               .low = a.low};
  Update(stream, a.adamw, master, Aligned(a.adamw.w, 8) && Aligned(a.low, 8));
}

void AdamWStochastic(Stream& stream, const AdamWStochasticArgs& a) {
  const NoMaster master = {
      .w = static_cast<uint16_t*>(a.adamw.w), .key = a.key, .first = a.first};
  Update(stream, a.adamw, master, Aligned(a.adamw.w, 8) && a.first % 4 == 0);
}

}  // namespace delink::cuda
