// The machine, time and program of a run, for its records.
#pragma once

#include <string>
#include <vector>

namespace delink {

// "2026-03-01T09:30:00Z".
std::string UtcNow();

// The processor's name from the system, or "unknown".
std::string ProcessorName();

// The command line of this process.
std::vector<std::string> CommandWords();

// The version of this build: "0.1.0".
std::string DelinkVersion();

// The commit that this program was built from, "58bc693d1f2e"; with the suffix
// "-dirty" if files had changed; "unknown" outside git.
std::string DelinkCommit();

// The optional features in this build: "MPI", "oneDNN", ...
std::vector<std::string> DelinkFeatures();

// The three above in a line: "delink 0.1.0 (commit 58bc693d1f2e; MPI, oneDNN)".
std::string BuildLine();

}  // namespace delink
