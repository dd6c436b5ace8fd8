// A gpt whose MLP is several, all of which see every token: in one kind of
// model their matrices are one parameter of three dimensions, in another each
// is a parameter of its own. Both compute the same, and so does training them.
#pragma once

#include <cstdint>

#include "recipes/models/model_list.h"
#include "tests/recipes/huggingface/tiny_folder.h"

namespace delink::testing {

inline constexpr int64_t kBank = 3;  // MLPs of a block

// In the place of gpt, with the sizes of recipes/tiny.toml, and of gpt2. Apart,
// blocks/0/mlp/up is blocks/0/mlp/up/0 and so on. What an MLP has begins at a
// multiple of 64 elements also where two ranks cut it, so that both kinds have
// the same slabs. Whole: in a folder too the matrices are one tensor, those of
// up [in, out].
ModelList BanksTogether();
ModelList BanksTogetherWhole();
ModelList BanksApart();

// A folder of both kinds, or a whole one.
TinyFolder BankFolder(bool whole = false);

}  // namespace delink::testing
