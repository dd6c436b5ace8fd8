// Where, when and by what program a run is at work: what its numbers are
// measured on.
#pragma once

#include <string>
#include <vector>

namespace delink {

// "2026-03-01T09:30:00Z".
std::string UtcNow();

// As the system calls it; "unknown" where it does not say.
std::string ProcessorName();

// The words that this process was started with.
std::vector<std::string> CommandWords();

// Of this build: "0.1.0".
std::string DelinkVersion();

// The commit that this program was built from, "58bc693d1f2e", with "-dirty"
// behind it where files differed from it; "unknown" outside of git.
std::string DelinkCommit();

// What it was built with of what may be left out: "MPI", "oneDNN", ...
std::vector<std::string> DelinkFeatures();

// All of that in a line: "delink 0.1.0 (commit 58bc693d1f2e; MPI, oneDNN)".
std::string BuildLine();

}  // namespace delink
