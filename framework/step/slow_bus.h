// The bus between the host and a device as though it were slower than it is: a
// copy ends when it ends, but not before a link of a set latency and bandwidth
// would be through with it. A testing aid for the CPU, where both are one
// memory: what copies cost a step, and what of them hides, can be measured
// where there is no bus.
//
// Each way is a lane of a step, which has one copy under way at a time, so the
// ways do not disturb each other. Nobody blocks and nobody spins: a Pending
// compares the time when it is tested.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/comm/communicator.h"
#include "framework/comm/delayed_communicator.h"
#include "framework/comm/link.h"

namespace delink {

class SlowBus {
 public:
  // Either way is such a link. Without `now` the time is steady_clock's.
  explicit SlowBus(const Link& way, Nanoseconds now = nullptr);

  int64_t Now() const { return now_(); }
  // `copy`, null where it is complete, as though it took at least what a way
  // takes for so many bytes from `begin` on; of none it is what it is. The bus
  // outlives it.
  std::unique_ptr<Pending> Slow(std::unique_ptr<Pending> copy, int64_t begin,
                                int64_t bytes) const;

 private:
  const Link way_;
  const Nanoseconds now_;
};

}  // namespace delink
