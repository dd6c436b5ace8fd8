#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/run_elements.cuh"

namespace delink::cuda {

void Sgd(Stream& stream, const SgdArgs& a) {
  const UpdatedParams& params = a.params;
  WithMaster(params, [&]<typename Master>(const Master& master, bool aligned) {
    const SgdRule<Master> rule = {.master = master,
                                  .g = {params.g, params.bf16_g},
                                  .m = static_cast<float*>(a.m),
                                  .control = params.control,
                                  .lr_scale = params.lr_scale,
                                  .momentum = static_cast<float>(a.momentum),
                                  .decay = static_cast<float>(params.decay),
                                  .nesterov = a.nesterov};
    RunElements(stream, rule, params.n,
                aligned && GradientAligned(rule.g) && Aligned(a.m, 16));
  });
}

namespace {

constexpr int kBiasThreads = 128;

__global__ void __launch_bounds__(kBiasThreads)
    BalanceBiasKernel(BalanceBiasArgs a) {
  const int64_t i = int64_t{blockIdx.x} * kBiasThreads + threadIdx.x;
  if (a.control->skip != 0 || i >= a.n) return;
  float& bias = static_cast<float*>(a.bias)[i];
  bias = a.After(i, bias);
}

}  // namespace

void BalanceBias(Stream& stream, const BalanceBiasArgs& a) {
  if (a.n == 0) return;
  Launch(BalanceBiasKernel,
         dim3(static_cast<unsigned>((a.n + kBiasThreads - 1) / kBiasThreads)),
         dim3(kBiasThreads), 0, stream, a);
}

void Lion(Stream& stream, const LionArgs& a) {
  const UpdatedParams& params = a.params;
  WithMaster(params, [&]<typename Master>(const Master& master, bool aligned) {
    const LionRule<Master> rule = {.master = master,
                                   .g = {params.g, params.bf16_g},
                                   .m = static_cast<float*>(a.m),
                                   .control = params.control,
                                   .lr_scale = params.lr_scale,
                                   .decay = params.decay,
                                   .beta1 = static_cast<float>(a.beta1),
                                   .rest1 = static_cast<float>(1 - a.beta1),
                                   .beta2 = static_cast<float>(a.beta2),
                                   .rest2 = static_cast<float>(1 - a.beta2)};
    RunElements(stream, rule, params.n,
                aligned && GradientAligned(rule.g) && Aligned(a.m, 16));
  });
}

}  // namespace delink::cuda
