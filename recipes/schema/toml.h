// TOML text to a Value tree. The one file that includes the TOML library is
// toml.cc.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "recipes/schema/value.h"

namespace delink::schema {

// The document; `origin` is the name of the file in positions. Syntax errors (a
// key given twice, text that is not UTF-8, a number too large) have a position:
// "gpt.toml:3:7: ...".
absl::StatusOr<Table> ParseToml(std::string_view text, std::string_view origin);

// A value of `--set`: parsed as TOML if possible, else the text as a string.
// Dates stay strings.
Value ParseSetValue(std::string_view text, const Source& source);

}  // namespace delink::schema
