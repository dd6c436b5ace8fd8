#include "framework/device/cuda/divisor.cuh"

#include <gtest/gtest.h>

#include <cstdint>

#include "framework/base/rng.h"

namespace delink::cuda::divisor_test {
namespace {

// Around multiples of the divisor, up to where their product ends.
TEST(Divisor, DividesWhateverItPromises) {
  const RngKey key = KeyFromSeed(7);
  for (int shift = 0; shift < 40; ++shift) {
    for (const int64_t off : {-1, 0, 1}) {
      const int64_t d = (int64_t{1} << shift) + off;
      if (d < 1) continue;
      const Divisor divisor(d);
      const uint64_t below = ~uint64_t{0} / static_cast<uint64_t>(d);
      const auto largest =
          static_cast<int64_t>(below < INT64_MAX ? below - 1 : INT64_MAX);
      for (uint64_t i = 0; i < 200; ++i) {
        const auto words = Philox(key, i, static_cast<uint64_t>(d));
        const auto any = static_cast<int64_t>(
            (uint64_t{words[0]} << 32 | words[1]) >> (1 + words[2] % 62));
        const int64_t a = any % largest;
        for (const int64_t near : {a, a / d * d, a / d * d + d - 1}) {
          if (near > largest) continue;
          ASSERT_EQ(divisor.Quotient(near), near / d) << near << " / " << d;
        }
      }
      ASSERT_EQ(divisor.Quotient(largest), largest / d) << d;
    }
  }
}

}  // namespace
}  // namespace delink::cuda::divisor_test
