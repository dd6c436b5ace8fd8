// The batch of a step in host memory: all micro-batches of this rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace delink {

struct HostBatch {
  std::vector<int32_t> inputs;   // [M, B, T]
  std::vector<int32_t> targets;  // [M, B, T]; -1: not counted
  std::vector<int64_t> samples;  // [M, B] global sample numbers
  // [M, B, T] where BatchShape::masked: the place of each token in its document
  // (layers/kernels/arguments.h); else empty.
  std::vector<int32_t> positions;
};

// [M]: the counted targets of each micro-batch, of targets [M, B, T].
inline std::vector<int64_t> CountedTargets(const std::vector<int32_t>& targets,
                                           int64_t micro_batches) {
  const int64_t tokens = static_cast<int64_t>(targets.size()) / micro_batches;
  std::vector<int64_t> counted;
  for (int64_t m = 0; m < micro_batches; ++m) {
    const auto first = targets.begin() + m * tokens;
    counted.push_back(tokens - std::count(first, first + tokens, -1));
  }
  return counted;
}

}  // namespace delink
