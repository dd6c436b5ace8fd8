#include "data/loader/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "framework/base/at.h"

namespace delink::permutation_test {
namespace {

TEST(Permutation, IsABijectionForEverySize) {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= 300; ++n) sizes.push_back(n);
  for (const int64_t n : {1023, 1024, 1025, 4096, 4097, 65'537, 99'991}) {
    sizes.push_back(n);
  }
  for (const int64_t n : sizes) {
    const Permutation permutation(KeyFromSeed(static_cast<uint64_t>(n)), n);
    std::vector<bool> seen(static_cast<size_t>(n), false);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t j = permutation(i);
      ASSERT_GE(j, 0);
      ASSERT_LT(j, n);
      ASSERT_FALSE(At(seen, j)) << n << ": " << j;
      At(seen, j) = true;
    }
  }
}

TEST(Permutation, HugeSizesStayInside) {
  const int64_t n = (int64_t{1} << 62) - 57;
  const Permutation permutation(KeyFromSeed(1), n);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(permutation(n - 1 - i), n);
  }
}

// Positions 0..n/4 land in each quarter about equally often, whatever the key.
TEST(Permutation, MixesAndDependsOnTheKey) {
  const int64_t n = 10'000;
  int equal = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Permutation a(KeyFromSeed(seed), n), b(KeyFromSeed(seed + 100), n);
    int quarter[4] = {0, 0, 0, 0};
    for (int64_t i = 0; i < n / 4; ++i) {
      ++quarter[4 * a(i) / n];
      equal += a(i) == b(i);
    }
    // Hypergeometric: mean 625, standard deviation under 22.
    for (const int count : quarter) EXPECT_LT(std::abs(count - 625), 110);
  }
  // Expected 20 * 2500 / 10 000 = 5.
  EXPECT_LT(equal, 25);
}

}  // namespace
}  // namespace delink::permutation_test
