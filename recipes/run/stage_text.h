// How the numbers of a stage are written: alike in the log, metrics and plans.
#pragma once

#include <cstdint>
#include <string>

#include "framework/step/memory.h"
#include "nlohmann/json_fwd.hpp"

namespace delink {

// "7.1 M unique parameters, 85.1 M virtual".
std::string ParametersText(int64_t unique, int64_t virtual_count);

nlohmann::ordered_json ToJson(const MemoryAccount& account);

}  // namespace delink
