// A communicator whose ranks are threads of one process: layouts and races can
// be tested cheaply, and under ThreadSanitizer.
//
// Sums are taken in the order of ranks, exactly. An operation is carried out by
// whichever rank posts last; nobody blocks in a call except in Split. If a rank
// posts another operation than the others, leaves early, fails or aborts, the
// ranks of the whole family of communicators do not wait for it: they get an
// error that says what each did.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"

namespace delink {

// Runs `rank_main` on `size` threads, each with its own rank of one
// communicator, and waits for all of them. OK if all return OK, else the first
// error: "rank 2: ...". If a rank returns an error, or returns while others
// wait for it, all ranks stop waiting.
absl::Status RunRanks(
    int size, const std::function<absl::Status(Communicator&)>& rank_main);

}  // namespace delink
