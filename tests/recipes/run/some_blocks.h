// A model of some blocks of another: what a stage that visits those alone is
// held against.
#pragma once

#include <memory>
#include <vector>

#include "framework/module/sequential.h"

namespace delink::testing {

// Its layers are those of `model`, which must outlive it, its blocks `blocks`
// under the names that they have there; names of parameters and of dropout are
// the same, layers are counted anew. `registry`, until now of `model`, becomes
// that of the new one: `model` itself is of no other use from here on.
std::unique_ptr<Sequential> KeepBlocks(const std::vector<int>& blocks,
                                       Sequential& model,
                                       ParamRegistry& registry);

}  // namespace delink::testing
