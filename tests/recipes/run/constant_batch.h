// A batch for steps whose numbers do not matter.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/engine/host_batch.h"
#include "recipes/run/stage/batches.h"

namespace delink::testing {

inline HostBatch ConstantBatch(const BatchCut& cut) {
  const auto tokens = static_cast<size_t>(cut.local() * cut.seq);
  return {.inputs = std::vector<int32_t>(tokens, 1),
          .targets = std::vector<int32_t>(tokens, 2),
          .samples = std::vector<int64_t>(static_cast<size_t>(cut.local()), 0)};
}

}  // namespace delink::testing
