#include "parallel/pipeline/one_f_one_b.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {

std::vector<Unit> OneFOneB(const ProgramShape& shape, int32_t stage) {
  DELINK_CHECK_EQ(ChunkOf(shape, shape.layers - 1) + 1, shape.stages);
  const int32_t count = shape.micro_batches;
  const int32_t ahead = std::min(shape.stages - 1 - stage, count);
  std::vector<Unit> units;
  const auto add = [&](Op op, int32_t m) {
    units.push_back({.op = op, .chunk = stage, .micro_batch = m});
  };
  for (int32_t m = 0; m < ahead; ++m) add(Op::kForward, m);
  for (int32_t m = 0; m < count; ++m) {
    if (m + ahead < count) add(Op::kForward, m + ahead);
    add(Op::kBackward, m);
  }
  return units;
}

}  // namespace delink
