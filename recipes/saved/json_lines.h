// Files with a JSON object per line. All problems are reported at once.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"

namespace delink {

// Returns the problem of line `line`, counted from 1, in words that follow "the
// line"; empty if there is none. `row` is an object.
using TakeJsonLine =
    std::function<std::string(int64_t line, const nlohmann::json& row)>;

// Calls `take` for each line that is not white space. InvalidArgument: lists
// the first wrong lines, each with its problem; or says PATH `empty` for a file
// without lines.
absl::Status ReadJsonLines(const std::string& path, const std::string& empty,
                           const TakeJsonLine& take);

// The text of a member. If there is none, returns an empty text and sets
// `problem`, unless it is set already.
std::string TextMember(const nlohmann::json& row, const char* key,
                       std::string* problem);

}  // namespace delink
