// A key of a recipe with its type erased: how to read it, how to write it, what
// to say of it. Section (recipes/schema/section.h) makes them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "recipes/schema/problems.h"
#include "recipes/schema/value.h"

namespace delink::schema {

// Where the reading of one key tells what is wrong.
class Report {
 public:
  Report(Problems* problems, std::string key, std::string folder)
      : problems_(problems), key_(std::move(key)), folder_(std::move(folder)) {}

  void Error(const Source& source, std::string_view message) {
    problems_->Add(source, key_, message);
  }
  // "expected an integer, got a table"
  void WrongType(const Value& value, std::string_view expected);

  // What paths are relative to.
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
  // Stores the value, or reports why not and leaves the member alone.
  std::function<void(const Value&, Report&)> read;
  // The value now; empty when the key is to be left out.
  std::function<std::optional<Value>()> write;
};

}  // namespace delink::schema
