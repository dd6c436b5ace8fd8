// What is wrong with a recipe, all of it, each with its place; and where each
// key was given, so that checks made later can still point at it.
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
  // Where `key` was given; else the nearest table around it that was; else the
  // file.
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

  // InvalidArgument with a line for each problem, in the order of the file and
  // then of the command line: the first 20, and how many more; OK when there is
  // none.
  absl::Status ToStatus() const;

 private:
  struct Problem {
    Source source;
    std::string text;
  };
  std::vector<Problem> problems_;
};

// "; did you mean 'layers'?" for the word of `known` nearest to `word`: what
// others call so, what is spelt nearly so, or has a word in common with it
// ("weight_decay" and "decay"). Nothing when none is near.
std::string Suggestion(std::string_view word,
                       const std::vector<std::string>& known);

}  // namespace schema
}  // namespace delink
