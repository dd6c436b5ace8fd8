// The speed of writing and reading a file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/machine.h"

namespace delink::bench {

// Uses a new file in `folder` (empty: the system's for temporary files), which
// is always removed, even if the process dies. Writing ends when the file is
// synced. Reading bypasses the page cache if the file system supports it
// (O_DIRECT); else the system is first asked to drop the file's pages.
// InvalidArgument: the folder cannot be written to.
absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, int64_t bytes);

}  // namespace delink::bench
