#include "data/loader/permutation.h"

#include "framework/base/check.h"

namespace delink {
namespace {

constexpr uint64_t kRounds = 6;

}  // namespace

Permutation::Permutation(RngKey key, int64_t n) : key_(key), n_(n) {
  DELINK_CHECK_GT(n, 0);
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(n)) {
    ++half_bits_;
  }
}

uint64_t Permutation::Encrypt(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_;
  uint64_t right = x & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const auto words = Philox(key_, right, round);
    const uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t i) const {
  DELINK_CHECK(0 <= i && i < n_) << i << " of " << n_;
  uint64_t x = static_cast<uint64_t>(i);
  do {
    x = Encrypt(x);
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

}  // namespace delink
