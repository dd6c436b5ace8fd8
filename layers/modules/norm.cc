#include "layers/modules/norm.h"

#include "layers/ops/norm.h"

namespace delink {

Norm::Norm(const Scope& s, const Config& c)
    : eps_(c.eps),
      weight_(s.Part("norm").Param(
          "weight", {.shape = {c.dim}, .init = Init::Ones(), .decay = false})),
      bias_(c.kind == NormKind::kLayerNorm
                ? &s.Part("norm").Param(
                      "bias",
                      {.shape = {c.dim}, .init = Init::Zeros(), .decay = false})
                : nullptr) {}

Var Norm::operator()(Var x) {
  return bias_ != nullptr ? ops::LayerNorm(x, weight_, *bias_, eps_)
                          : ops::RmsNorm(x, weight_, eps_);
}

ops::SumAndNorm Norm::Add(Var x, Var branch) {
  return bias_ != nullptr ? ops::AddLayerNorm(x, branch, weight_, *bias_, eps_)
                          : ops::AddRmsNorm(x, branch, weight_, eps_);
}

}  // namespace delink
