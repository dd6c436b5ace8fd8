// What a run says of its speed.
#include "recipes/run/observers/meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace delink::meter_test {
namespace {

TEST(Meter, TheMeanFollowsTheStepsAndIsForgotten) {
  Meter meter(RunPeak(1e6, nullptr), 0);
  const Speed first = meter.Step(/*seconds=*/2, /*tokens=*/100,
                                 /*flops_per_token=*/1000);
  EXPECT_EQ(first.tokens_per_s, 50);
  EXPECT_EQ(first.peak_fraction, 0.05);
  EXPECT_EQ(first.mean_seconds, 2);
  EXPECT_EQ(first.mean_tokens_per_s, 50);
  EXPECT_EQ(first.mean_peak_fraction, 0.05);
  const Speed second = meter.Step(4, 100, 1000);
  EXPECT_EQ(second.tokens_per_s, 25);
  EXPECT_DOUBLE_EQ(second.mean_seconds, 2.2);
  EXPECT_DOUBLE_EQ(second.mean_tokens_per_s, 100 / 2.2);
  meter.ForgetSteps();
  EXPECT_EQ(meter.Step(5, 100, 1000).mean_seconds, 5);
}

TEST(Meter, MeasuringThePeakAgainIsNoStepsTime) {
  Meter meter(
      RunPeak(1e4,
              [] {
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                return 1e6;
              }),
      0);
  meter.Lap();
  // What is reached is the mean's.
  const Speed speed = meter.Step(1, 100, 1000);
  EXPECT_EQ(speed.new_peak_flops, 1e6);
  EXPECT_EQ(speed.peak_fraction, 10);  // of the peak as it was
  EXPECT_EQ(speed.mean_peak_fraction, 0.1);
  EXPECT_EQ(meter.peak_flops(), 1e6);
  EXPECT_GE(meter.Seconds(), 0.2);
  EXPECT_LT(meter.Lap(), 0.15);
  EXPECT_FALSE(meter.Step(1, 100, 1000).new_peak_flops.has_value());
}

TEST(Meter, CountsOnFromWhatTheRunHasTaken) {
  Meter meter(RunPeak(1, nullptr), 1000,
              Meter::Clock::now() - std::chrono::seconds(10));
  EXPECT_GE(meter.Seconds(), 1010);
  EXPECT_LT(meter.Seconds(), 1070);
}

}  // namespace
}  // namespace delink::meter_test
