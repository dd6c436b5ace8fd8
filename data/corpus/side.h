// The sides of a corpus, "train" and "validation", are folders of one folder.
#pragma once

#include <string>
#include <string_view>

namespace delink {

// The folder of one side of the corpus at `dir`: `dir` itself where it is one,
// the one in it where `dir` is what BuildCorpus was given. Nothing is opened.
std::string SideOf(const std::string& dir, std::string_view side);

}  // namespace delink
