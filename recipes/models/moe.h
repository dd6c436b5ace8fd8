// The `moe` kind of model: experts in place of the MLPs of another kind.
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "recipes/models/moe_config.h"

namespace delink {

// `c`: a config from a recipe; vocab, max_seq and all omitted keys are
// resolved.
std::unique_ptr<Sequential> BuildMoe(const Scope& s, const MoeConfig& c);

// Its layers.
Embedding::Config EmbeddingOf(const MoeConfig& c);
void AddBlocks(Sequential& model, const MoeConfig& c);
LmHead::Config HeadOf(const MoeConfig& c);

}  // namespace delink
