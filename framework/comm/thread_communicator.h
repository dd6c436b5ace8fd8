// A communicator whose ranks are threads of one process: layouts and races can
// be tested cheaply, and under ThreadSanitizer.
//
// Sums are taken in the order of ranks, exactly. An operation is carried out by
// whichever rank posts last; nobody blocks in a call except in Split. A rank
// that posts another operation than the others, that leaves early, fails or
// aborts is reported to all ranks of the whole family of communicators, with
// what each did, instead of leaving them to wait.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "framework/comm/communicator.h"

namespace delink {

// Runs `rank_main` on `size` threads, each with its own rank of one
// communicator, and waits for all of them. OK when all return OK, else what
// went wrong first: "rank 2: ...". A rank that returns an error, or returns
// while others wait for it, ends the waiting of all.
absl::Status RunRanks(
    int size, const std::function<absl::Status(Communicator&)>& rank_main);

}  // namespace delink
