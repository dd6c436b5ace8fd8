// The `gpt` kind of model: GPT-2's layout (Radford et al., 2019).
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/transformer.h"

namespace delink {

// `c`: a config from a recipe; vocab and max_seq are set.
std::unique_ptr<Sequential> BuildGpt(const Scope& s, const GptConfig& c);

// Its layers.
Embedding::Config EmbeddingOf(const GptConfig& c);
PreNormBlock<Mlp>::Config BlockOf(const GptConfig& c);
void AddBlocks(Sequential& model, const GptConfig& c);
LmHead::Config HeadOf(const GptConfig& c);

}  // namespace delink
