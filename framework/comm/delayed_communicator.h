// Ranks as though they were further from each other than they are: an operation
// ends when it ends, but not before a link of a set latency and bandwidth would
// be through with it. A testing aid, so that what a slow network does to a step
// can be measured where there is none.
//
// All ranks that take part tell each other when they have posted an operation.
// It is due when the last has, its link is free, the link has sent what it
// sends and the latency has passed; the latency of one passes while the next is
// sent. A communicator has a link for its collectives, one at a time, and to
// each other rank and from it one for what is sent, served in the order in
// which both ends are ready. What is split from it has links of its own. A
// collective is of the bytes that each rank must send at the least (link.h).
//
// Nobody blocks and nobody spins: a Pending compares the time when it is
// tested.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "framework/comm/communicator.h"
#include "framework/comm/link.h"

namespace delink {

// Nanoseconds, of one clock for all ranks: they are on one machine.
using Nanoseconds = std::function<int64_t()>;
int64_t SteadyNow();  // steady_clock's
int64_t InNanoseconds(double seconds);

// Does what `comm` does, with the same bits and errors, later. Collective over
// it; of one rank it is `comm` itself. Without `now` the time is
// steady_clock's.
absl::StatusOr<std::unique_ptr<Communicator>> DelayExchanges(
    std::unique_ptr<Communicator> comm, const Link& link,
    Nanoseconds now = nullptr);

}  // namespace delink
