#include "recipes/schema/toml.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"

namespace delink::schema {
namespace {

Source At(const toml::source_region& region, std::string_view origin) {
  return {std::string(origin), static_cast<int>(region.begin.line),
          static_cast<int>(region.begin.column)};
}

Value Convert(const toml::node& node, std::string_view origin);

Table ConvertTable(const toml::table& table, std::string_view origin) {
  Table result;
  for (const auto& [key, node] : table) {
    result.push_back({std::string(key.str()), At(key.source(), origin),
                      Convert(node, origin)});
  }
  // The library sorts by name; messages should come in the order of the file.
  std::stable_sort(result.begin(), result.end(),
                   [](const Member& a, const Member& b) {
                     return std::pair(a.source.line, a.source.column) <
                            std::pair(b.source.line, b.source.column);
                   });
  return result;
}

Value Convert(const toml::node& node, std::string_view origin) {
  const Source source = At(node.source(), origin);
  if (const auto* x = node.as_boolean()) return Value(x->get(), source);
  if (const auto* x = node.as_integer()) {
    return Value(static_cast<int64_t>(x->get()), source);
  }
  if (const auto* x = node.as_floating_point()) {
    return Value(x->get(), source);
  }
  if (const auto* x = node.as_string()) return Value(x->get(), source);
  if (const auto* x = node.as_table()) {
    return Value(ConvertTable(*x, origin), source);
  }
  if (const auto* x = node.as_array()) {
    List list;
    for (const toml::node& item : *x) list.push_back(Convert(item, origin));
    return Value(std::move(list), source);
  }
  std::ostringstream text;
  node.visit([&](const auto& x) { text << x; });
  return Value(DateTime{text.str()}, source);
}

}  // namespace

absl::StatusOr<Table> ParseToml(std::string_view text,
                                std::string_view origin) {
  const toml::parse_result result = toml::parse(text, origin);
  if (!result) {
    const toml::parse_error& error = result.error();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s", At(error.source(), origin).ToString(), error.description()));
  }
  return ConvertTable(result.table(), origin);
}

Value ParseSetValue(std::string_view text, const Source& source) {
  const std::string line = absl::StrFormat("x = %s", text);
  const toml::parse_result result = toml::parse(line);
  // A value with a line break in it could bring keys of its own.
  if (result && result.table().size() == 1) {
    Value value = Convert(*result.table().get("x"), source.origin);
    if (value.As<DateTime>() == nullptr) {
      value.source = source;
      return value;
    }
  }
  return Value(std::string(text), source);
}

}  // namespace delink::schema
