// Models of all kinds of which a step can be made not finite: one whose tokens
// have a mark.
#pragma once

#include <cstdint>
#include <string>

#include "recipes/models/model_list.h"

namespace delink::testing {

// The token: no text has the byte unless it is put there.
inline constexpr char kMark = 1;

// In the place of gpt, llama and moe, whose recipes they have. What a
// micro-batch with kMark among its tokens makes is infinite, from the first
// layer on.
ModelList MarkedModels();

// Text for some `sequences` of `length` bytes that has the mark once, in the
// middle.
std::string MarkedText(int64_t sequences, int64_t length);

}  // namespace delink::testing
