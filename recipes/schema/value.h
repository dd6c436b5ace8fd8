// A TOML value as plain data, with its position in the source.
//
// The schema works on this tree, so that the TOML library stays behind
// recipes/schema/toml.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace delink::schema {

// `origin` is a file, or "--set key=value", which has no line (0).
struct Source {
  std::string origin;
  int line = 0;
  int column = 0;  // both from 1

  // "gpt.toml:14:9"
  std::string ToString() const;
};

// A date or time, as written. No key takes one.
struct DateTime {
  std::string text;
};

struct Value;
struct Member;
using List = std::vector<Value>;
using Table = std::vector<Member>;  // in the order of the file; keys differ

struct Value {
  Value() = default;
  template <typename T>
  explicit Value(T v, Source s = {})
      : data(std::move(v)), source(std::move(s)) {}

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data);
  }
  template <typename T>
  T* As() {
    return std::get_if<T>(&data);
  }

  std::variant<bool, int64_t, double, std::string, DateTime, List, Table> data;
  Source source;
};

struct Member {
  std::string key;
  Source source;  // of the key
  Value value;
};

const Value* Find(const Table& table, std::string_view key);
Value* Find(Table& table, std::string_view key);

// "the string "12"", "a table": for messages.
std::string Describe(const Value& value);

// TOML text on one line that reads back equal, doubles bit for bit.
std::string ToToml(const Value& value);

}  // namespace delink::schema
