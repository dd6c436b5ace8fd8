// A schedule of one stage whose backwards are in two halves, for tests of
// these.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/plan/assemble.h"

namespace delink::testing {

// A micro-batch goes forward and backward, then the next; the second halves are
// `behind` micro-batches behind the first.
inline StageSchedule HalvesBehind(int32_t behind) {
  return [behind](const ProgramShape& shape, int32_t) {
    std::vector<Unit> units;
    for (int32_t m = 0; m < shape.micro_batches + behind; ++m) {
      if (m < shape.micro_batches) {
        units.push_back({.op = Op::kForward, .micro_batch = m});
        units.push_back({.op = Op::kBackwardInput, .micro_batch = m});
      }
      if (m >= behind) {
        units.push_back({.op = Op::kBackwardWeight, .micro_batch = m - behind});
      }
    }
    return units;
  };
}

}  // namespace delink::testing
