// The sides of a corpus, "train" and "validation", are folders in its folder.
#pragma once

#include <string>
#include <string_view>

namespace delink {

// The folder of side `side` of the corpus at `dir`; `dir` itself unless it is
// the folder of both sides. Opens no file.
std::string SideOf(const std::string& dir, std::string_view side);

}  // namespace delink
