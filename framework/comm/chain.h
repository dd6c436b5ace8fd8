// Operations one behind the other, as one: each is begun when the one before it
// is finished, by whoever tests the whole.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"

namespace delink {

// Does something and gives what is to be waited for before the next step; null
// where that is nothing. It never blocks.
using ChainStep = std::function<std::unique_ptr<Pending>()>;

// `first`, then the steps; null stands for what is finished. Steps that have
// nothing to wait for run at once, here as later inside Test. Null where all
// of it is done on return. The first error ends the chain: later steps do not
// run, and nothing is under way. What steps refer to lives until the chain is
// finished.
std::unique_ptr<Pending> Chain(std::unique_ptr<Pending> first,
                               std::vector<ChainStep> steps);

// All of them at a time, null ones left out; null where nothing is left. An
// error is told when all are finished: the first in the list.
std::unique_ptr<Pending> All(std::vector<std::unique_ptr<Pending>> operations);

}  // namespace delink
