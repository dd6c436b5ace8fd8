// SentencePiece models of kinds that Delink does not train, but reads.
// Without Abseil: the library's headers cannot be seen together with it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace delink::testing {

// The .model file; fails the program where the library cannot train it.
std::string TrainModel(const std::map<std::string, std::string>& options,
                       const std::vector<std::string>& lines);

}  // namespace delink::testing
