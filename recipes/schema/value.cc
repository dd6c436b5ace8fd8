#include "recipes/schema/value.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/check.h"

namespace delink::schema {
namespace {

std::string FloatText(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), x);
  DELINK_CHECK(result.ec == std::errc());
  std::string text(buffer, result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (u < 0x20 || u == 0x7f) {
      absl::StrAppend(&quoted, absl::StrFormat("\\u%04X", u));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string KeyText(const std::string& key) {
  const bool bare =
      !key.empty() &&
      key.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyz"
          "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string::npos;
  return bare ? key : Quoted(key);
}

struct TomlText {
  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(int64_t x) const { return absl::StrCat(x); }
  std::string operator()(double x) const { return FloatText(x); }
  std::string operator()(const std::string& x) const { return Quoted(x); }
  std::string operator()(const DateTime& x) const { return x.text; }
  std::string operator()(const List& x) const {
    std::string text = "[";
    for (const Value& item : x) {
      absl::StrAppend(&text, text.size() > 1 ? ", " : "", ToToml(item));
    }
    return text + "]";
  }
  std::string operator()(const Table& x) const {
    if (x.empty()) return "{}";
    std::string text = "{ ";
    for (const Member& member : x) {
      absl::StrAppend(&text, text.size() > 2 ? ", " : "", KeyText(member.key),
                      " = ", ToToml(member.value));
    }
    return text + " }";
  }
};

struct Description {
  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(int64_t x) const {
    return absl::StrCat("the integer ", x);
  }
  std::string operator()(double x) const {
    return absl::StrCat("the float ", FloatText(x));
  }
  std::string operator()(const std::string& x) const {
    return absl::StrCat("the string ", Quoted(x));
  }
  std::string operator()(const DateTime& x) const {
    return absl::StrCat("the date or time ", x.text);
  }
  std::string operator()(const List&) const { return "a list"; }
  std::string operator()(const Table&) const { return "a table"; }
};

}  // namespace

std::string Source::ToString() const {
  if (line == 0) return origin;
  return absl::StrCat(origin, ":", line, ":", column);
}

const Value* Find(const Table& table, std::string_view key) {
  for (const Member& member : table) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Value* Find(Table& table, std::string_view key) {
  return const_cast<Value*>(Find(std::as_const(table), key));
}

std::string Describe(const Value& value) {
  return std::visit(Description{}, value.data);
}

std::string ToToml(const Value& value) {
  return std::visit(TomlText{}, value.data);
}

}  // namespace delink::schema
