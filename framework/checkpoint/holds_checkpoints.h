// Whether there is a checkpoint at a path, whatever else is there.
#pragma once

#include <string>

namespace delink {

// Whether `path` is a step folder, or has some: a run folder, or its
// checkpoints folder. Nothing of them is read.
bool HoldsCheckpoints(const std::string& path);

}  // namespace delink
