// How fast a file is written and read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/machine.h"

namespace delink::bench {

// With a new file in `folder`, of which nothing is left, however we end.
// Writing ends when the file is synced; reading is past the page cache where
// the file system can (O_DIRECT), else of pages that it was asked to drop.
// InvalidArgument: the folder cannot be written to.
absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, int64_t bytes);

}  // namespace delink::bench
