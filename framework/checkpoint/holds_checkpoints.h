// Whether a path has a checkpoint.
#pragma once

#include <string>

namespace delink {

// Whether `path` is a step folder, or contains one: a run folder, or its
// checkpoints folder. Reads no file.
bool HoldsCheckpoints(const std::string& path);

}  // namespace delink
