// Ranks that come late, each at its own moments: whatever the order in which
// they come to an exchange, it ends, and is the same.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

#include "framework/base/rng.h"
#include "framework/step/engine/step_watch.h"

namespace delink::testing {

// Holds up what begins, one time in four, by a rank's own dice.
class LateWatch final : public StepWatch {
 public:
  explicit LateWatch(int rank)
      : key_(Fold(KeyFromSeed(7), static_cast<uint64_t>(rank))) {}
  void Begin(Lane, int64_t, std::string_view) override {
    const uint32_t dice = Philox(key_, count_++, 0)[0];
    if (dice % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(dice / 4 % 400));
  }
  double Vote() override { return 1; }

 private:
  const RngKey key_;
  std::atomic<uint64_t> count_ = 0;
};

}  // namespace delink::testing
