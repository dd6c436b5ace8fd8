// A keyed permutation of [0, n) that is computed, not stored: a balanced
// Feistel network over the next power of four, with Philox as its round
// function, walked along its cycle until it lands inside (Black and Rogaway,
// "Ciphers with arbitrary finite domains", 2002). Fewer than four steps on
// average.
#pragma once

#include <cstdint>

#include "framework/base/rng.h"

namespace delink {

class Permutation {
 public:
  Permutation(RngKey key, int64_t n);

  // The image of i in [0, n); every value in [0, n) is the image of one i.
  int64_t operator()(int64_t i) const;

 private:
  uint64_t Encrypt(uint64_t x) const;

  RngKey key_;
  int64_t n_;
  int half_bits_ = 0;
};

}  // namespace delink
