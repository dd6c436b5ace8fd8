// Copies over a slow bus, by a clock that the test sets: nothing here waits for
// real time.
#include "framework/step/engine/slow_bus.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink::slow_bus_test {
namespace {

// 1000 ns until something is there, and a byte takes 10.
constexpr Link kSlow{.latency = 1e-6, .bytes_per_second = 1e8};

class Copy final : public Pending {
 public:
  explicit Copy(absl::StatusOr<bool>& done) : done_(done) {}

 private:
  absl::StatusOr<bool> Poll() override { return done_; }
  absl::StatusOr<bool>& done_;
};

TEST(SlowBusTest, ACopyTakesWhatItsBytesTakeFromItsBeginOn) {
  int64_t time = 500;
  SlowBus bus(kSlow, [&] { return time; });
  const int64_t begin = bus.Now();
  time = 600;  // what copying itself took
  const std::unique_ptr<Pending> copy = bus.Slow(nullptr, true, begin, 30);
  ASSERT_NE(copy, nullptr);
  // The other way is not in its way.
  const std::unique_ptr<Pending> other = bus.Slow(nullptr, false, begin, 40);
  time = 1799;
  EXPECT_FALSE(copy->Test().value());
  time = 1800;
  EXPECT_TRUE(copy->Test().value());
  time = 1899;
  EXPECT_FALSE(other->Test().value());
  time = 1900;
  EXPECT_TRUE(other->Test().value());
}

// Of two lanes: a latency each, but not the way.
TEST(SlowBusTest, CopiesOfOneWayAreOneBehindTheOther) {
  int64_t time = 0;
  SlowBus bus(kSlow, [&] { return time; });
  const std::unique_ptr<Pending> first = bus.Slow(nullptr, true, 0, 30);
  const std::unique_ptr<Pending> second = bus.Slow(nullptr, true, 100, 40);
  time = 1300;
  EXPECT_TRUE(first->Test().value());
  time = 1699;
  EXPECT_FALSE(second->Test().value());
  time = 1700;
  EXPECT_TRUE(second->Test().value());
  // Then it is free again.
  const std::unique_ptr<Pending> third = bus.Slow(nullptr, true, 5000, 10);
  time = 6100;
  EXPECT_TRUE(third->Test().value());
}

TEST(SlowBusTest, NorIsItThroughBeforeItIs) {
  int64_t time = 0;
  SlowBus bus(kSlow, [&] { return time; });
  absl::StatusOr<bool> done = false;
  const std::unique_ptr<Pending> copy =
      bus.Slow(std::make_unique<Copy>(done), true, 0, 1);
  time = 5000;
  EXPECT_FALSE(copy->Test().value());
  done = true;
  EXPECT_TRUE(copy->Test().value());

  absl::StatusOr<bool> fails = absl::InternalError("the bus is off");
  const std::unique_ptr<Pending> failed =
      bus.Slow(std::make_unique<Copy>(fails), true, time, 1);
  EXPECT_EQ(failed->Test().status().message(), "the bus is off");
}

TEST(SlowBusTest, WhatCopiesNothingIsWhatItIs) {
  SlowBus bus(kSlow, [] { return 0; });
  EXPECT_EQ(bus.Slow(nullptr, true, 0, 0), nullptr);
}

}  // namespace
}  // namespace delink::slow_bus_test
