// A key of a recipe with its type erased: how to read, write and document it.
// Section (recipes/schema/section.h) creates fields.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "recipes/schema/problems.h"
#include "recipes/schema/value.h"

namespace delink::schema {

// Takes the errors found while reading one key.
class Report {
 public:
  Report(Problems* problems, std::string key, std::string folder)
      : problems_(problems), key_(std::move(key)), folder_(std::move(folder)) {}

  void Error(const Source& source, std::string_view message) {
    problems_->Add(source, key_, message);
  }
  // "expected an integer, got a table"
  void WrongType(const Value& value, std::string_view expected);

  // Paths are relative to this folder.
  const std::string& folder() const { return folder_; }

 private:
  Problems* problems_;
  std::string key_;
  std::string folder_;
};

struct Field {
  std::string name;
  std::string type;  // "integer, at least 1"
  std::string doc;
  bool required = false;
  bool fixed = false;
  std::string when_omitted;
  // Stores the value, or reports an error and leaves the member unchanged.
  std::function<void(const Value&, Report&)> read;
  // The current value; empty if the key is to be left out.
  std::function<std::optional<Value>()> write;
};

}  // namespace delink::schema
