// What tests of AdamW's kernels work on.
#pragma once

#include <cmath>
#include <vector>

#include "framework/base/rng.h"
#include "framework/optim/kernels.h"

namespace delink::testing {

// Planes of n random elements.
struct AdamWPlanes {
  explicit AdamWPlanes(int64_t n) {
    const RngKey key = KeyFromSeed(9);
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(4 * i);
      p.push_back(static_cast<float>(Normal(key, at)));
      g.push_back(static_cast<float>(Normal(key, at + 1)));
      m.push_back(static_cast<float>(Normal(key, at + 2)));
      v.push_back(static_cast<float>(std::abs(Normal(key, at + 3))));
    }
  }
  AdamWArgs Args(int64_t begin, int64_t end, const UpdateControl* control) {
    return {.p = p.data() + begin,
            .g = g.data() + begin,
            .m = m.data() + begin,
            .v = v.data() + begin,
            .n = end - begin,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = 1e-8,
            .decay = 0.1,
            .update = 3,
            .control = control};
  }
  bool operator==(const AdamWPlanes&) const = default;
  std::vector<float> p, g, m, v;
};

}  // namespace delink::testing
