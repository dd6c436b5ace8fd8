// All problems of a recipe, each with its position; and the position of each
// key, so that later checks can point at it.
//
// Keys are written as people read them: "stage[1].parallel.data".
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "recipes/schema/value.h"

namespace delink {

class Positions {
 public:
  explicit Positions(std::string origin) : origin_(std::move(origin)) {}

  void Set(std::string key, schema::Source source);
  // The position of `key`; if it was not given, that of the nearest enclosing
  // table that was; else the file.
  schema::Source Find(std::string_view key) const;

 private:
  std::string origin_;
  std::map<std::string, schema::Source, std::less<>> sources_;
};

namespace schema {

class Problems {
 public:
  // "source: key: message", or "source: message" without a key.
  void Add(const Source& source, std::string_view key,
           std::string_view message);
  size_t size() const { return problems_.size(); }

  // OK without problems. Else InvalidArgument with a line for each of the first
  // 20 problems, in the order of the file and then of the command line, and the
  // number of the others.
  absl::Status ToStatus() const;

 private:
  struct Problem {
    Source source;
    std::string text;
  };
  std::vector<Problem> problems_;
};

// "; did you mean 'layers'?" for the word of `known` nearest to `word`: another
// framework's name for the same key, a similar spelling, or a word in common
// ("weight_decay" and "decay"). Empty if none is near.
std::string Suggestion(std::string_view word,
                       const std::vector<std::string>& known);

}  // namespace schema
}  // namespace delink
