// Slows the bus between the host and a device: a copy does not complete before
// a link of a set latency and bandwidth would have done it. A testing aid for
// the CPU, where both share one memory: it lets us measure without a bus what
// copies cost a step, and how much of them overlaps.
//
// The two ways do not disturb each other, but lanes that share a way do: a copy
// has the way when earlier ones are through, except for their latency. Nothing
// blocks or spins: a Pending compares the time when it is tested.
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
  // Each way is a link like `way`. Without `now` the time is steady_clock's.
  explicit SlowBus(const Link& way, Nanoseconds now = nullptr);

  int64_t Now() const { return now_(); }
  // `copy` (null: complete), made to take at least the time that its way takes
  // for so many bytes from `begin` on; unchanged for 0 bytes. The bus must
  // outlive the result. One thread at a time: one drives all lanes but compute.
  std::unique_ptr<Pending> Slow(std::unique_ptr<Pending> copy, bool to_device,
                                int64_t begin, int64_t bytes);

 private:
  const Link way_;
  const Nanoseconds now_;
  std::array<int64_t, 2> free_ = {};  // by way: when it is free
};

}  // namespace delink
