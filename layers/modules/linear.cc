#include "layers/modules/linear.h"

#include "layers/ops/rows.h"

namespace delink {

Linear::Linear(const Scope& s, const Config& c)
    : split_(c.split),
      weight_(s.Param("weight", {.shape = {c.out, c.in},
                                 .init = Init::Normal(c.stddev),
                                 .split = c.split,
                                 .stacked = c.stacked,
                                 .unit = c.unit,
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
                               .unit = c.split == Split::kOut ? c.unit : 1,
                               .residual = c.residual})
                   : nullptr) {}

Param* Linear::BiasOn(const Tape& tape) const {
  const VisitGroup* const group = tape.groups().tensor;
  const bool first = group == nullptr || group->rank() == 0;
  return split_ != Split::kIn || first ? bias_ : nullptr;
}

Var Linear::operator()(Var x) {
  if (split_ == Split::kOut) x = ops::GatherRows(x);
  const Var y = ops::Linear(x, weight_, BiasOn(x.tape()));
  return split_ == Split::kIn ? ops::ScatterRows(y) : y;
}

Var Linear::operator()(const ops::Activated& x) {
  const Tape& tape = x.value.tape();
  DELINK_CHECK(tape.groups().tensor == nullptr || split_ != Split::kOut);
  const Var y = ops::Linear(x, weight_, BiasOn(tape));
  return split_ == Split::kIn ? ops::ScatterRows(y) : y;
}

ops::Activated Linear::Gelu(Var x, GeluForm form) {
  // There would be parts of sums.
  DELINK_CHECK(x.tape().groups().tensor == nullptr || split_ != Split::kIn);
  if (split_ == Split::kOut) x = ops::GatherRows(x);
  return ops::LinearGelu(x, weight_, bias_, form);
}

}  // namespace delink
