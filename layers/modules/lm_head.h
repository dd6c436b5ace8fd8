// LmHead: the end of a language model: a norm, then a head whose weight is its
// own or tied to the token embedding. The head's weight is sharded over ranks
// (Tape::groups) by vocabulary rows, as layers/ops/head_loss.h explains.
#pragma once

#include <cstdint>
#include <string>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/modules/norm.h"

namespace delink {

class LmHead final : public EpilogueModule {
 public:
  struct Config {
    int64_t dim = 0;
    int64_t vocab = 0;
    std::string tied_to;  // "embed/token/weight"; empty: head/weight is its own
    double stddev = 0.02;
    NormKind norm = NormKind::kLayerNorm;
    double norm_eps = 1e-5;
    double z_loss = 0;  // weight of the z-loss (layers/ops/head_loss.h)
  };
  LmHead(const Scope& s, const Config& c);

  // x [B, T, dim].
  void Loss(Var x) override;
  Var Logits(Var x) override;  // [B, T, vocab]

 private:
  int64_t vocab_;
  double z_loss_;
  Norm norm_;
  Param& weight_;  // [vocab, dim]
};

}  // namespace delink
