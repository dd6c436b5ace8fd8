// The families of Hugging Face models that are settings of our kinds.
#pragma once

#include <vector>

#include "recipes/huggingface/family.h"

namespace delink {

// "gpt2", of the kind `gpt`.
huggingface::Family Gpt2Family();

// Of the kind `llama`, in the order in which they are asked for one that
// expresses a model: llama, mistral, qwen2, qwen3.
std::vector<huggingface::Family> LlamaFamilies();

}  // namespace delink
