// Formats the numbers of a stage, the same in the log, metrics and plans.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/plan/memory.h"
#include "nlohmann/json_fwd.hpp"

namespace delink {

// "7.1 M unique parameters, 85.1 M virtual"; where fewer work on a token, also
// "12.3 M active".
std::string ParametersText(int64_t unique, int64_t virtual_count,
                           int64_t active);

// A table of memory accounts: `title` and the accounts' headings, a row for
// each kind of memory, and a total. Each line ends with a newline.
std::string AccountTable(
    const std::string& title,
    const std::vector<std::pair<std::string, MemoryAccount>>& accounts);

nlohmann::ordered_json ToJson(const MemoryAccount& account);

}  // namespace delink
