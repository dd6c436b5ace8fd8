#include "framework/base/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"

namespace delink {
namespace {

// Deeper than any valid file; a parser's memory grows with the nesting.
constexpr int kDeepest = 64;

// Where brackets nest too deeply; npos if they do not. Brackets in strings do
// not count.
size_t TooDeep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      if (++depth > kDeepest) return i;
    } else if (!quoted && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return std::string_view::npos;
}

// The library's message without its mark, cut to a readable length.
std::string Shortened(std::string_view what) {
  constexpr size_t kLongest = 200;
  const size_t mark = what.find("] ");
  if (mark != std::string_view::npos) what.remove_prefix(mark + 2);
  return std::string(what.substr(0, kLongest));
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text) {
  using Json = nlohmann::json;
  const size_t deep = TooDeep(text);
  if (deep != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("nested more than ", kDeepest, " deep at byte ", deep));
  }
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string twice;
  const auto see = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto at = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys.resize(at + 2);
      keys[at + 1].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!At(keys, at).insert(key).second && twice.empty()) {
        twice = absl::StrCat("the key ", Shortened(value.dump()),
                             " is there twice in one object");
      }
    }
    return true;
  };
  try {
    Json parsed = Json::parse(text, see);
    if (!twice.empty()) return absl::InvalidArgumentError(twice);
    return parsed;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(Shortened(error.what()));
  }
}

}  // namespace delink
