// The families of Hugging Face models that our kinds can express.
#pragma once

#include <vector>

#include "recipes/huggingface/family.h"

namespace delink {

// "gpt2", of the kind `gpt`.
huggingface::Family Gpt2Family();

// Of the kind `llama`: llama, mistral, qwen2, qwen3. The first that can express
// a model is used for it.
std::vector<huggingface::Family> LlamaFamilies();

// Of the kind `moe`: mixtral, qwen3_moe, dots1.
std::vector<huggingface::Family> MoeFamilies();

}  // namespace delink
