// The bus between the host and a device as though it were slower than it is: a
// copy ends when it ends, but not before a link of a set latency and bandwidth
// would be through with it. A testing aid for the CPU, where both are one
// memory: what copies cost a step, and what of them hides, can be measured
// where there is no bus.
//
// The ways do not disturb each other; lanes of a step that share one do: a copy
// has the way when those that began before it are through, but for their
// latency. Nobody blocks and nobody spins: a Pending compares the time when it
// is tested.
#pragma once

#include <array>
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
  // `copy`, null where it is complete, as though it took at least what its way
  // takes for so many bytes from `begin` on; of none it is what it is. The bus
  // outlives it. One thread at a time, as one drives all lanes but compute.
  std::unique_ptr<Pending> Slow(std::unique_ptr<Pending> copy, bool to_device,
                                int64_t begin, int64_t bytes);

 private:
  const Link way_;
  const Nanoseconds now_;
  std::array<int64_t, 2> free_ = {};  // when nothing goes a way any more
};

}  // namespace delink
