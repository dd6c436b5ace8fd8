// The peak that speeds are quoted against is the best that was measured.
#include "recipes/record/run_peak.h"

#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::run_peak_test {
namespace {

using ::delink::testing::TempDir;

TEST(BestPeak, TheBestIsKeptUnderEachKey) {
  const TempDir dir;
  const std::string path = dir / "cache/delink/peak.json";
  EXPECT_EQ(BestPeak(path, "a", 2e9), 2e9);
  EXPECT_EQ(BestPeak(path, "a", 1e9), 2e9);
  EXPECT_EQ(BestPeak(path, "b", 1e9), 1e9);
  EXPECT_EQ(BestPeak(path, "a", 3e9), 3e9);
  EXPECT_EQ(BestPeak(path, "a", 0), 3e9);
  EXPECT_EQ(BestPeak(path, "b", 0), 1e9);
}

TEST(BestPeak, WhatCannotBeReadOrWrittenIsNoError) {
  const TempDir dir;
  EXPECT_EQ(BestPeak("", "a", 2e9), 2e9);
  EXPECT_EQ(BestPeak("/proc/none/peak.json", "a", 2e9), 2e9);
  const std::string path = dir / "peak.json";
  for (const char* text : {"", "{\"a\": ", "[1, 2]", "{\"a\": \"fast\"}"}) {
    ASSERT_TRUE(WriteFile(path, text).ok());
    EXPECT_EQ(BestPeak(path, "a", 2e9), 2e9) << text;
    EXPECT_EQ(BestPeak(path, "a", 1e9), 2e9) << text;
  }
}

TEST(RunPeak, IsMeasuredAgainWhenExceeded) {
  int measured = 0;
  double speed = 1.5e9;
  RunPeak peak(1e9, [&] {
    ++measured;
    return speed;
  });
  EXPECT_FALSE(peak.Reached(1e9));
  EXPECT_EQ(measured, 0);
  EXPECT_TRUE(peak.Reached(1.4e9));
  EXPECT_EQ(peak.flops(), 1.5e9);
  // What is reached is no peak, and measuring has its time.
  for (int i = 0; i < 98; ++i) EXPECT_FALSE(peak.Reached(2e9));
  EXPECT_EQ(measured, 1);
  speed = 1.2e9;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(peak.Reached(2e9));
  EXPECT_EQ(measured, 2);
  EXPECT_EQ(peak.flops(), 1.5e9);
  RunPeak fixed(1e9, nullptr);
  EXPECT_FALSE(fixed.Reached(2e9));
}

}  // namespace
}  // namespace delink::run_peak_test
