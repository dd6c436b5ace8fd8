// What every StreamCommunicator must do, of a device whose memory is not the
// host's too: called by every rank of `comm`, with a device that all ranks may
// share.
#pragma once

#include "absl/status/status.h"
#include "framework/comm/communicator.h"
#include "framework/device/backend.h"

namespace delink::testing {

// The cases of communicator_cases.h that have one operation under way.
absl::Status CheckStreamCases(Device& device, Communicator& comm);
// In the stream's order, and without waiting: neighbours exchange in two lanes.
absl::Status CheckStreamRing(Device& device, Communicator& comm);
// Uneven parts, empty ones, and a rank's own.
absl::Status CheckAllToAllV(Device& device, Communicator& comm);

}  // namespace delink::testing
