#include "data/commands/sides.h"

#include "absl/strings/str_cat.h"
#include "data/corpus/staging.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"

namespace delink {

Folders BuiltIn(const std::string& dir) {
  Folders sides;
  for (const std::string_view side : kSideNames) {
    const std::string path = JoinPath(dir, side);
    if (IsDirectory(path)) sides.emplace_back(side, path);
  }
  return sides;
}

Folders SidesOf(const std::string& dir) {
  if (!PathExists(JoinPath(dir, kSumsName))) {
    Folders sides = BuiltIn(dir);
    if (!sides.empty()) return sides;
  }
  return {{"corpus", dir}};
}

absl::StatusOr<std::vector<Side>> OpenSides(const Folders& folders,
                                            const CorpusOpening& opening) {
  std::vector<Side> sides;
  for (const auto& [name, path] : folders) {
    DELINK_ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(path, opening));
    sides.push_back({.name = name, .corpus = std::move(corpus)});
  }
  return sides;
}

std::string Grouped(int64_t value) {
  std::string digits = absl::StrCat(value);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ' ');
  }
  return digits;
}

}  // namespace delink
