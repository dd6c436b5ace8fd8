// Rows of several documents, for tests of what is masked by document.
#pragma once

#include <cstdint>
#include <vector>

namespace delink::testing {

// [B, T]: the place of each token in its document, where documents of these
// lengths, > 0, follow each other over and over. Row b begins with the b-th;
// one that a row ends cuts off goes no further.
inline std::vector<int32_t> Positions(int64_t B, int64_t T,
                                      const std::vector<int64_t>& lengths) {
  std::vector<int32_t> positions;
  for (int64_t b = 0; b < B; ++b) {
    auto document = static_cast<size_t>(b) % lengths.size();
    int64_t place = 0;
    for (int64_t t = 0; t < T; ++t) {
      positions.push_back(static_cast<int32_t>(place));
      if (++place < lengths[document]) continue;
      place = 0;
      document = (document + 1) % lengths.size();
    }
  }
  return positions;
}

}  // namespace delink::testing
