#include "layers/modules/lm_head.h"

#include "layers/ops/head_loss.h"
#include "layers/ops/rows.h"

namespace delink {

LmHead::LmHead(const Scope& s, const Config& c)
    : vocab_(c.vocab),
      z_loss_(c.z_loss),
      norm_(s / "norm", {.dim = c.dim, .kind = c.norm, .eps = c.norm_eps}),
      weight_(c.tied_to.empty()
                  ? (s / "head")
                        .Part("head")
                        .Param("weight", {.shape = {c.vocab, c.dim},
                                          .init = Init::Normal(c.stddev),
                                          .split = Split::kOut})
                  : (s / "head" / "weight").Link(c.tied_to)) {}

void LmHead::Loss(Var x) {
  ops::HeadLoss(ops::GatherRows(norm_(x)), weight_, z_loss_, vocab_);
}

Var LmHead::Logits(Var x) {
  return ops::HeadLogits(ops::GatherRows(norm_(x)), weight_, vocab_);
}

}  // namespace delink
