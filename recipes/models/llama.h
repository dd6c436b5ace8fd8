// The `llama` kind of model: the layout of Llama 2 (Touvron et al., 2023) and
// the families that follow it.
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "layers/modules/embedding.h"
#include "layers/modules/gated_mlp.h"
#include "layers/modules/lm_head.h"
#include "recipes/models/llama_config.h"
#include "recipes/models/transformer.h"

namespace delink {

// `c`: a config from a recipe; vocab, max_seq and all omitted keys are
// resolved.
std::unique_ptr<Sequential> BuildLlama(const Scope& s, const LlamaConfig& c);

// Its layers.
Embedding::Config EmbeddingOf(const LlamaConfig& c);
PreNormBlock<GatedMlp>::Config BlockOf(const LlamaConfig& c);
void AddBlocks(Sequential& model, const LlamaConfig& c);
LmHead::Config HeadOf(const LlamaConfig& c);

}  // namespace delink
