#include "recipes/schema/toml.h"

// The library asserts conditions that a file can violate ("[[["), and under
// NDEBUG tells the compiler to assume them. With neither, it reports an error
// there.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_MAX_NESTED_VALUES 16
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"

namespace delink::schema {
namespace {

Source At(const toml::source_region& region, std::string_view origin) {
  return {std::string(origin), static_cast<int>(region.begin.line),
          static_cast<int>(region.begin.column)};
}

// Converts the library's tree to ours.
class Converter {
 public:
  explicit Converter(std::string_view origin) : origin_(origin) {}

  Table ConvertTable(const toml::table& table) {
    Table result;
    for (const auto& [key, node] : table) {
      result.push_back(
          {std::string(key.str()), At(key.source(), origin_), Convert(node)});
    }
    // The library sorts by name; messages should come in the order of the file.
    std::stable_sort(result.begin(), result.end(),
                     [](const Member& a, const Member& b) {
                       return std::pair(a.source.line, a.source.column) <
                              std::pair(b.source.line, b.source.column);
                     });
    return result;
  }

  Value Convert(const toml::node& node) {
    const Source source = At(node.source(), origin_);
    if (const auto* x = node.as_boolean()) return Value(x->get(), source);
    if (const auto* x = node.as_integer()) {
      return Value(static_cast<int64_t>(x->get()), source);
    }
    if (const auto* x = node.as_floating_point()) {
      return Value(x->get(), source);
    }
    if (const auto* x = node.as_string()) return Value(x->get(), source);
    if (node.is_table() || node.is_array()) return Inside(node, source);
    std::ostringstream text;
    node.visit([&](const auto& x) { text << x; });
    return Value(DateTime{text.str()}, source);
  }

  // The first value nested deeper than any key.
  const std::optional<Source>& too_deep() const { return too_deep_; }

 private:
  static constexpr int kDeepest = 32;

  Value Inside(const toml::node& node, const Source& source) {
    if (depth_ == kDeepest) {
      if (!too_deep_) too_deep_ = source;
      return Value(Table{}, source);
    }
    ++depth_;
    Value value(Table{}, source);
    if (const auto* table = node.as_table()) {
      value.data = ConvertTable(*table);
    } else {
      List list;
      for (const toml::node& item : *node.as_array()) {
        list.push_back(Convert(item));
      }
      value.data = std::move(list);
    }
    --depth_;
    return value;
  }

  std::string_view origin_;
  int depth_ = 0;
  std::optional<Source> too_deep_;
};

// The library is recursive, and a key with ever more dots in it would overflow
// the stack. The first line with too many; 0 when there is none.
int LineOfTooManyDots(std::string_view text) {
  constexpr int kMostDots = 200;
  int line = 1, dots = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dots = 0;
    } else if (c == '.' && ++dots > kMostDots) {
      return line;
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<Table> ParseToml(std::string_view text,
                                std::string_view origin) {
  if (const int line = LineOfTooManyDots(text); line > 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: more than 200 dots in one line; break it",
                        Source{std::string(origin), line, 1}.ToString()));
  }
  const toml::parse_result result = toml::parse(text, origin);
  if (!result) {
    const toml::parse_error& error = result.error();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s", At(error.source(), origin).ToString(), error.description()));
  }
  Converter converter(origin);
  Table table = converter.ConvertTable(result.table());
  if (converter.too_deep()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: nested too deep", converter.too_deep()->ToString()));
  }
  return table;
}

Value ParseSetValue(std::string_view text, const Source& source) {
  if (LineOfTooManyDots(text) > 0) return Value(std::string(text), source);
  const std::string line = absl::StrFormat("x = %s", text);
  const toml::parse_result result = toml::parse(line);
  // A value with a line break could add other keys.
  if (result && result.table().size() == 1) {
    Converter converter(source.origin);
    Value value = converter.Convert(*result.table().get("x"));
    if (value.As<DateTime>() == nullptr && !converter.too_deep()) {
      value.source = source;
      return value;
    }
  }
  return Value(std::string(text), source);
}

}  // namespace delink::schema
