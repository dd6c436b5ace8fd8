// Files with a JSON value a line, of which all that is wrong is said at once.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"

namespace delink {

// What is wrong with line `line`, counted from 1, in words that go after "the
// line"; empty when nothing is. `row` is an object.
using TakeJsonLine =
    std::function<std::string(int64_t line, const nlohmann::json& row)>;

// Calls `take` for each line that is more than white space. InvalidArgument:
// names the first lines that are wrong, each with what is; or PATH `empty`, of
// a file without lines.
absl::Status ReadJsonLines(const std::string& path, const std::string& empty,
                           const TakeJsonLine& take);

// The text of a member, empty where it has none: then `problem` says so, unless
// it says something already.
std::string TextMember(const nlohmann::json& row, const char* key,
                       std::string* problem);

}  // namespace delink
