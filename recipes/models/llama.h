// The `llama` kind of model: the layout of Llama 2 (Touvron et al., 2023) and
// the families that follow it.
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "recipes/models/llama_config.h"

namespace delink {

// A config as a recipe gives it: vocab and max_seq are set, and so is what a
// recipe may omit.
std::unique_ptr<Sequential> BuildLlama(const Scope& s, const LlamaConfig& c);

}  // namespace delink
