#include "tests/testing/numbers.h"

namespace delink::testing {

std::vector<int32_t> Integers(std::string_view name, int64_t count,
                              int32_t bound) {
  const RngKey key = Fold(KeyFromSeed(2), name);
  std::vector<int32_t> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<int32_t>(Philox(key, i, 0)[0] % bound);
  }
  return values;
}

}  // namespace delink::testing
