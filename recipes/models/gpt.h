// The `gpt` kind of model: GPT-2's layout (Radford et al., 2019).
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "recipes/models/gpt_config.h"

namespace delink {

// `c`: a config from a recipe; vocab and max_seq are set.
std::unique_ptr<Sequential> BuildGpt(const Scope& s, const GptConfig& c);

}  // namespace delink
