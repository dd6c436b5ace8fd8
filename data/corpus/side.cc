#include "data/corpus/side.h"

#include "framework/base/file.h"
#include "framework/base/sha256.h"

namespace delink {

std::string SideOf(const std::string& dir, std::string_view side) {
  const std::string inside = JoinPath(dir, side);
  const bool both = !dir.empty() && !PathExists(JoinPath(dir, kSumsName)) &&
                    PathExists(JoinPath(inside, kSumsName));
  return both ? inside : dir;
}

}  // namespace delink
