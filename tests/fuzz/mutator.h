// Inputs made from seeds: bits flipped, parts cut, doubled, moved, replaced by
// words and by numbers at the edges. The same seed gives the same inputs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace delink::fuzz {

class Mutator {
 public:
  // `seeds` is not empty.
  Mutator(std::vector<std::string> seeds, std::vector<std::string> words,
          uint64_t seed);

  // The next input; the first are the seeds themselves.
  std::string Next();

 private:
  void Mutate(std::string& input);
  size_t Below(size_t bound);  // [0, bound), 0 for 0

  const std::vector<std::string> seeds_;
  const std::vector<std::string> words_;
  std::mt19937_64 random_;
  size_t count_ = 0;
};

}  // namespace delink::fuzz
