#include "layers/modules/embedding.h"

#include "layers/ops/embedding_lookup.h"

namespace delink {

Embedding::Embedding(const Scope& s, const Config& c)
    : token_((s / "token")
                 .Part("embedding")
                 .Param("weight", {.shape = {c.vocab, c.dim},
                                   .init = Init::Normal(c.stddev),
                                   .split = Split::kOut})),
      position_(c.positions > 0
                    ? &(s / "position")
                           .Part("position")
                           .Param("weight", {.shape = {c.positions, c.dim},
                                             .init = Init::Normal(c.stddev)})
                    : nullptr),
      dropout_(s, c.dropout) {}

Var Embedding::operator()(Var tokens) {
  return dropout_(ops::EmbeddingLookup(tokens, token_, position_));
}

}  // namespace delink
