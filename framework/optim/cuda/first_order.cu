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
