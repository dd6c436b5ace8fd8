// JSON that others wrote and that must mean one thing: nlohmann-json keeps the
// last of two equal keys and says nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace delink {

// Of text that is no JSON, or has a key twice in one object, or is nested too
// deeply: InvalidArgument that says what and where in the text; the caller adds
// the file.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text);

}  // namespace delink
