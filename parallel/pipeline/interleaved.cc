#include "parallel/pipeline/interleaved.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {

std::vector<Unit> Interleaved(const ProgramShape& shape, int32_t stage) {
  const int32_t stages = shape.stages;
  const int32_t turns = (ChunkOf(shape, shape.layers - 1) + 1) / stages;
  DELINK_CHECK_EQ(shape.micro_batches % stages, 0);
  const int32_t count = shape.micro_batches * turns;
  const int32_t ahead =
      std::min(2 * (stages - stage - 1) + (turns - 1) * stages, count);
  std::vector<Unit> units;
  // Number k of the forwards, or of the backwards.
  const auto add = [&](bool backward, int32_t k) {
    const int32_t turn = k / stages % turns;
    const int32_t chunk = (backward ? turns - 1 - turn : turn) * stages + stage;
    const int32_t group = k / (stages * turns);
    units.push_back({.op = backward ? Op::kBackward : Op::kForward,
                     .chunk = chunk,
                     .micro_batch = group * stages + k % stages});
  };
  for (int32_t k = 0; k < ahead; ++k) add(false, k);
  for (int32_t k = 0; k < count; ++k) {
    if (k + ahead < count) add(false, k + ahead);
    add(true, k);
  }
  return units;
}

}  // namespace delink
