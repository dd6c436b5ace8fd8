// The `llama` kind of model: the layout of Llama 2 (Touvron et al., 2023) and
// the families that follow it.
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "recipes/models/llama_config.h"

namespace delink {

// `c`: a config from a recipe; vocab, max_seq and all omitted keys are
// resolved.
std::unique_ptr<Sequential> BuildLlama(const Scope& s, const LlamaConfig& c);

}  // namespace delink
