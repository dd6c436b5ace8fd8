// Simulates a slow network between ranks: an operation does not end before a
// link of a given latency and bandwidth would have finished it. A testing aid:
// how a slow network affects a step can be measured on a machine without one.
//
// All ranks that take part tell each other when they posted an operation. Once
// the last rank has posted it and its link is free, the link sends its bytes;
// the operation is due one latency later. The next operation is sent during
// this latency. A communicator has one link for its collectives, and one for
// all that a rank sends to others, which serves them in the order in which the
// rank posts them. If a receiver is late, its messages are served in the order
// in which both ends are ready. Communicators split from it have their own
// links. A collective counts as the least bytes that each rank must send
// (link.h).
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

// Does what `comm` does, with the same bits and errors, but later. Collective
// over `comm`; if it has one rank, the result is `comm` itself. Without `now`
// the time is steady_clock's.
absl::StatusOr<std::unique_ptr<Communicator>> DelayExchanges(
    std::unique_ptr<Communicator> comm, const Link& link,
    Nanoseconds now = nullptr);

}  // namespace delink
