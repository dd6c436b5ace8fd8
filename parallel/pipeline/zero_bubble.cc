#include "parallel/pipeline/zero_bubble.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {

std::vector<Unit> ZeroBubble(const ProgramShape& shape, int32_t stage) {
  DELINK_CHECK_EQ(ChunkOf(shape, shape.layers - 1) + 1, shape.stages);
  const int32_t count = shape.micro_batches;
  const int32_t ahead = std::min(shape.stages - 1 - stage, count);
  const int32_t behind = std::min(stage, count);
  std::vector<Unit> units;
  const auto add = [&](Op op, int32_t m) {
    units.push_back({.op = op, .chunk = stage, .micro_batch = m});
  };
  for (int32_t m = 0; m < ahead; ++m) add(Op::kForward, m);
  for (int32_t m = 0; m < count; ++m) {
    if (m + ahead < count) add(Op::kForward, m + ahead);
    add(behind == 0 ? Op::kBackward : Op::kBackwardInput, m);
    if (behind > 0 && m >= behind) add(Op::kBackwardWeight, m - behind);
  }
  for (int32_t m = count - behind; m < count; ++m) add(Op::kBackwardWeight, m);
  return units;
}

}  // namespace delink
