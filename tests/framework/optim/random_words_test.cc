// The words that round stochastically, by each set of instructions of this
// machine.
#include "framework/optim/cpu/random_words.h"

#include <gtest/gtest.h>

#include <vector>

namespace delink::cpu::random_words_test {
namespace {

TEST(RandomWords, ArePhiloxsByAllInstructions) {
  const RngKey key = KeyFromSeed(7);
  std::vector<uint64_t> counters(kPhiloxAtOnce);
  for (size_t i = 0; i < counters.size(); ++i) {
    // Around where a counter has a second word.
    counters[i] = (uint64_t{1} << 32) - 9 + i * i;
  }
  for (const uint64_t stream : {uint64_t{2}, uint64_t{3} << 33 | 5}) {
    for (const auto set : {Instructions::kBaseline, Instructions::kAvx2,
                           Instructions::kAvx512}) {
      if (!Has(set)) continue;
      std::vector<uint32_t> words(4 * kPhiloxAtOnce);
      PhiloxWords(set, key, counters.data(), stream, words.data());
      for (size_t i = 0; i < counters.size(); ++i) {
        const auto four = Philox(key, counters[i], stream);
        for (size_t k = 0; k < 4; ++k) {
          EXPECT_EQ(words[4 * i + k], four[k])
              << "instructions " << static_cast<int>(set) << ", counter " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace delink::cpu::random_words_test
