// JSON of unknown origin that must be unambiguous: nlohmann-json keeps the last
// of two equal keys without an error.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace delink {

// InvalidArgument if the text is no JSON, has a key twice in one object or is
// nested too deeply. The error says what is wrong and where in the text; the
// caller adds the name of the file.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text);

}  // namespace delink
