#include "layers/modules/linear.h"

#include "layers/ops/linear.h"

namespace delink {

Linear::Linear(const Scope& s, const Config& c)
    : weight_(s.Param("weight", {.shape = {c.out, c.in},
                                 .init = Init::Normal(c.stddev),
                                 .split = c.split,
                                 .stacked = c.stacked})),
      bias_(c.bias ? &s.Param("bias",
                              {.shape = {c.out},
                               .init = Init::Zeros(),
                               .decay = false,
                               .split = c.split == Split::kOut ? Split::kOut
                                                               : Split::kNone})
                   : nullptr) {}

Var Linear::operator()(Var x) { return ops::Linear(x, weight_, bias_); }

}  // namespace delink
