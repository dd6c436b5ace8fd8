#include "layers/modules/embedding.h"

#include "framework/base/check.h"
#include "framework/module/even_piece.h"
#include "layers/ops/embedding_lookup.h"
#include "layers/ops/rows.h"

namespace delink {

Embedding::Embedding(const Scope& s, const Config& c)
    : vocab_(c.vocab),
      token_((s / "token")
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
  const VisitGroup* const group = tokens.tape().groups().tensor;
  if (group == nullptr) {
    return dropout_(ops::EmbeddingLookup(tokens, token_, position_));
  }
  const Range own = EvenPiece(vocab_, group->rank(), group->size());
  DELINK_CHECK_EQ(token_.shape()[0], own.size()) << "of " << vocab_;
  const Var x = ops::ScatterRows(ops::EmbeddingPart(tokens, token_, own.begin));
  return dropout_(position_ != nullptr ? ops::AddPositions(x, *position_) : x);
}

}  // namespace delink
