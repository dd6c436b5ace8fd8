#include "layers/modules/linear.h"

#include "framework/module/cut_rects.h"
#include "layers/ops/rows.h"

namespace delink {

Linear::Linear(const Scope& s, const Config& c)
    : spec_({.shape = {c.out, c.in},
             .init = Init::Normal(c.stddev),
             .split = c.split,
             .stacked = c.stacked,
             .unit = c.unit,
             .residual = c.residual}),
      weight_(s.Param("weight", spec_)),
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
  return spec_.split != Split::kIn || first ? bias_ : nullptr;
}

void Linear::SayColumns(Var y) const {
  const VisitGroup* const group = y.tape().groups().tensor;
  if (spec_.split != Split::kOut || group == nullptr) return;
  y.tape().SetColumns(y, ColumnsAt(spec_, group->rank(), group->size()));
}

Var Linear::operator()(Var x) {
  if (spec_.split == Split::kOut) x = ops::GatherRows(x);
  const Var y = ops::Linear(x, weight_, BiasOn(x.tape()));
  if (spec_.split == Split::kIn) return ops::ScatterRows(y);
  SayColumns(y);
  return y;
}

Var Linear::operator()(const ops::Activated& x) {
  const Tape& tape = x.value.tape();
  DELINK_CHECK(tape.groups().tensor == nullptr || spec_.split != Split::kOut);
  const Var y = ops::Linear(x, weight_, BiasOn(tape));
  return spec_.split == Split::kIn ? ops::ScatterRows(y) : y;
}

ops::Activated Linear::Gelu(Var x, GeluForm form) {
  // With kIn a rank's product is only a part of a sum.
  DELINK_CHECK(x.tape().groups().tensor == nullptr ||
               spec_.split != Split::kIn);
  if (spec_.split == Split::kOut) x = ops::GatherRows(x);
  ops::Activated y = ops::LinearGelu(x, weight_, bias_, form);
  SayColumns(y.pre);
  SayColumns(y.value);
  return y;
}

}  // namespace delink
