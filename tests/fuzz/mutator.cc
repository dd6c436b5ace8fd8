#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace delink::fuzz {
namespace {

constexpr size_t kLongest = 1 << 16;

constexpr int64_t kLimits[] = {0,
                               1,
                               -1,
                               127,
                               128,
                               255,
                               256,
                               65'535,
                               65'536,
                               std::numeric_limits<int32_t>::max(),
                               std::numeric_limits<int32_t>::min(),
                               std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min()};

}  // namespace

Mutator::Mutator(std::vector<std::string> seeds, std::vector<std::string> words,
                 uint64_t seed)
    : seeds_(std::move(seeds)), words_(std::move(words)), random_(seed) {}

size_t Mutator::Below(size_t bound) {
  return bound == 0 ? 0 : static_cast<size_t>(random_() % bound);
}

std::string Mutator::Next() {
  if (count_ < seeds_.size()) return seeds_[count_++];
  std::string input = seeds_[Below(seeds_.size())];
  const size_t changes = 1 + Below(size_t{1} << Below(5));
  for (size_t i = 0; i < changes; ++i) Mutate(input);
  if (input.size() > kLongest) input.resize(kLongest);
  return input;
}

void Mutator::Mutate(std::string& input) {
  const size_t at = Below(input.size() + 1);
  const size_t span = Below(std::min<size_t>(input.size() - at, 64) + 1);
  switch (Below(10)) {
    case 0:
      if (at < input.size()) input[at] ^= static_cast<char>(1 << Below(8));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random_());
      break;
    case 2:
      input.insert(at, 1, static_cast<char>(random_()));
      break;
    case 3:
      input.erase(at, span);
      break;
    case 4:
      input.insert(Below(input.size() + 1), input.substr(at, span));
      break;
    case 5:
      input.resize(at);
      break;
    case 6: {
      const std::string& other = seeds_[Below(seeds_.size())];
      input.replace(
          at, span,
          other.substr(Below(other.size() + 1), Below(other.size() + 1)));
      break;
    }
    case 7: {
      const int64_t edge = kLimits[Below(std::size(kLimits))];
      input.replace(at, span, std::to_string(edge));
      break;
    }
    case 8: {
      const int64_t edge = kLimits[Below(std::size(kLimits))];
      const size_t bytes = size_t{1} << Below(4);
      input.replace(at, std::min(bytes, input.size() - at),
                    reinterpret_cast<const char*>(&edge), bytes);
      break;
    }
    default:
      if (words_.empty()) break;
      input.replace(at, Below(2) * span, words_[Below(words_.size())]);
  }
}

}  // namespace delink::fuzz
