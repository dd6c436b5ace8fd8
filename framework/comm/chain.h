// A sequence of operations as one Pending. Its Test begins each operation when
// the one before it is finished.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"

namespace delink {

// Does one step and returns the Pending to wait for before the next step, or
// null. It never blocks.
using ChainStep = std::function<std::unique_ptr<Pending>()>;

// Waits for `first` (null: finished already), then runs the steps. Steps run
// inside this call as long as there is nothing to wait for, and later inside
// Test. Returns null if the whole chain is done. The first error ends the
// chain: later steps do not run, and nothing is under way. Objects that steps
// refer to must live until the chain is finished.
std::unique_ptr<Pending> Chain(std::unique_ptr<Pending> first,
                               std::vector<ChainStep> steps);

// All operations at once, without the null ones; null if none is left. Errors
// are reported when all are finished: the first in the list.
std::unique_ptr<Pending> All(std::vector<std::unique_ptr<Pending>> operations);

}  // namespace delink
