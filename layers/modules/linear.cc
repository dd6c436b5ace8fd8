#include "layers/modules/linear.h"

namespace delink {

Linear::Linear(const Scope& s, const Config& c)
    : weight_(s.Param("weight", {.shape = {c.out, c.in},
                                 .init = Init::Normal(c.stddev),
                                 .split = c.split,
                                 .stacked = c.stacked,
                                 .residual = c.residual})),
      bias_(c.bias ? &s.Param("bias",
                              {.shape = {c.out},
                               .init = Init::Zeros(),
                               .decay = false,
                               .split = c.split == Split::kOut ? Split::kOut
                                                               : Split::kNone,
                               .stacked = c.split == Split::kOut
                                              ? c.stacked
                                              : std::vector<int64_t>(),
                               .residual = c.residual})
                   : nullptr) {}

Var Linear::operator()(Var x) { return ops::Linear(x, weight_, bias_); }

Var Linear::operator()(const ops::Activated& x) {
  return ops::Linear(x, weight_, bias_);
}

ops::Activated Linear::Gelu(Var x, GeluForm form) {
  return ops::LinearGelu(x, weight_, bias_, form);
}

}  // namespace delink
