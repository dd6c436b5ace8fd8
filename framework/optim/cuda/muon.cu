#include "framework/optim/cuda/cuda.h"
#include "framework/optim/cuda/muon.cuh"
#include "framework/optim/cuda/run_elements.cuh"

namespace delink::cuda {
namespace {

template <typename X>
bool AlignedX(const X* x) {
  return Aligned(x, 4 * sizeof(X));
}

template <typename X>
void Normalize(Stream& stream, const MuonNormalizeArgs& a) {
  const NormalizeRule<X> rule = {.u = static_cast<const float*>(a.u),
                                 .x = static_cast<X*>(a.x),
                                 .scale = a.scale};
  RunElements(stream, rule, a.n, Aligned(a.u, 16) && AlignedX(rule.x));
}

template <typename X>
void Combine(Stream& stream, const ScaleAddArgs& a) {
  const ScaleAddRule<X> rule = {.x = static_cast<const X*>(a.x),
                                .y = static_cast<X*>(a.y),
                                .a = static_cast<float>(a.a),
                                .b = static_cast<float>(a.b)};
  RunElements(stream, rule, a.n, AlignedX(rule.x) && AlignedX(rule.y));
}

template <typename X>
void Step(Stream& stream, const MuonStepArgs& a) {
  const UpdatedParams& params = a.params;
  WithMaster(params, [&]<typename Master>(const Master& master, bool aligned) {
    const MuonStepRule<Master, X> rule = {.master = master,
                                          .x = static_cast<const X*>(a.x),
                                          .control = params.control,
                                          .lr_scale = params.lr_scale,
                                          .decay = params.decay,
                                          .factor = a.factor};
    RunElements(stream, rule, params.n, aligned && AlignedX(rule.x));
  });
}

}  // namespace

void MuonMomentum(Stream& stream, const MuonMomentumArgs& a) {
  const MomentumRule rule = {.g = {a.g, a.bf16_g},
                             .m = static_cast<float*>(a.m),
                             .u = static_cast<float*>(a.u),
                             .control = a.control,
                             .momentum = static_cast<float>(a.momentum),
                             .rest = static_cast<float>(1 - a.momentum),
                             .nesterov = a.nesterov};
  RunElements(stream, rule, a.n,
              GradientAligned(rule.g) && Aligned(a.m, 16) && Aligned(a.u, 16));
}

void MuonNormalize(Stream& stream, const MuonNormalizeArgs& a) {
  Launch(NormalizeScaleKernel, dim3(1), dim3(kWarp), 0, stream, a);
  a.narrow ? Normalize<uint16_t>(stream, a) : Normalize<float>(stream, a);
}

void ScaleAdd(Stream& stream, const ScaleAddArgs& a) {
  a.narrow ? Combine<uint16_t>(stream, a) : Combine<float>(stream, a);
}

void MuonStep(Stream& stream, const MuonStepArgs& a) {
  a.narrow ? Step<uint16_t>(stream, a) : Step<float>(stream, a);
}

}  // namespace delink::cuda
