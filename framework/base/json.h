// JSON from text and to text. Compiled here alone: the library's parser and its
// writer take a compiler longer than most of what uses them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace delink {

// is_discarded() where the text is no JSON; with `throws`, what the library
// throws instead.
nlohmann::json ParseJson(std::string_view text);
nlohmann::ordered_json ParseOrderedJson(std::string_view text,
                                        bool throws = false);

// On one line, or with `indent` blanks a level. What is no UTF-8 (names of
// files may be anything) is replaced.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace delink
