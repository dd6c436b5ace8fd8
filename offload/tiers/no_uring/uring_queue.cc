#include "absl/status/status.h"
#include "offload/tiers/disk_queue.h"

namespace delink::offload {

absl::StatusOr<std::unique_ptr<DiskQueue>> NewUringQueue(
    const DiskQueueOptions&) {
  return absl::UnavailableError("this build has no liburing");
}

}  // namespace delink::offload
