// A model that Delink does not have, for runs of one's own models.
#pragma once

#include <memory>

#include "framework/module/sequential.h"
#include "recipes/models/gpt_config.h"
#include "recipes/models/model_list.h"

namespace delink::testing {

// Of a gpt's sizes: blocks with attention take turns with blocks that have an
// MLP.
std::unique_ptr<Sequential> BuildHybrid(const Scope& s, const GptConfig& c);

// A hybrid in the place of gpt, whose recipes and parts it has.
ModelList Hybrids();

}  // namespace delink::testing
