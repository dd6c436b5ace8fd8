// The speed of the disk tier (offload/tiers): what offloading to this disk can
// count on.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/machine.h"

namespace delink::bench {

// Uses a file of 128 MiB (quick: 2 MiB) in `folder` (empty: the system's for
// temporary files), of which nothing remains, even if the process dies: medians
// of three samples. InvalidArgument: the folder cannot be written to, or has no
// room.
absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, bool quick);

}  // namespace delink::bench
