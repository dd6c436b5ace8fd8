// JSON from text and to text. Only json.cc compiles the library's parser and
// writer, which take a compiler longer than most files that use them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace delink {

// If the text is no JSON, the result is_discarded(); with `throws` the library
// throws instead.
nlohmann::json ParseJson(std::string_view text);
nlohmann::ordered_json ParseOrderedJson(std::string_view text,
                                        bool throws = false);

// On one line, or with `indent` blanks a level. Bytes that are not UTF-8 (file
// names may have any) are replaced.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace delink
