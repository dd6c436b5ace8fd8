// The sides of a corpus, for commands that name and print them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/corpus/corpus.h"

namespace delink {

using Folders = std::vector<std::pair<std::string, std::string>>;  // by name

// The sides that a build wrote into `dir`.
Folders BuiltIn(const std::string& dir);

// The sides of the corpus at `dir`, which may be one side itself.
Folders SidesOf(const std::string& dir);

struct Side {
  std::string name;
  Corpus corpus;
};

absl::StatusOr<std::vector<Side>> OpenSides(const Folders& folders,
                                            const CorpusOpening& opening);

// 1234567 as "1 234 567".
std::string Grouped(int64_t value);

}  // namespace delink
