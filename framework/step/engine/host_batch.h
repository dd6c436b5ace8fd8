// The batch of a step in host memory: all micro-batches of this rank.
#pragma once

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

}  // namespace delink
