// Where and when a run is at work: what its numbers are measured on.
#pragma once

#include <string>

namespace delink {

// "2026-03-01T09:30:00Z".
std::string UtcNow();

// As the system calls it; "unknown" where it does not say.
std::string ProcessorName();

// Of this build: "0.1.0".
std::string DelinkVersion();

}  // namespace delink
