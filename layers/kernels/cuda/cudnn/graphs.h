// cuDNN's graphs of attention. No device is needed to make one, nor to ask
// cuDNN for a plan of it where a device's properties are known.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/kernels/arguments.h"
#include "layers/kernels/cuda/attention_scratch.h"
#include "layers/kernels/cuda/cudnn/frontend.h"

namespace delink::cuda {

// The tensors of a graph, by which a call gives it their addresses.
enum Uid : int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

// What a graph is made for: one call of cuDNN, that is `B`, `H` and `Hkv` of a
// part. Strides are in elements.
struct GraphShape {
  bool backward;
  bool deterministic;  // of backward
  int64_t B, H, Hkv, Dh, T, window;
  float scale;
  HeadStrides q, kv, o;  // of their gradients too
  bool lse;              // of forward: written

  // clang-tidy 14 takes the 0 of a defaulted comparison for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const GraphShape&, const GraphShape&) = default;
};
GraphShape ShapeOf(const AttentionForwardArgs&);
GraphShape ShapeOf(const AttentionBackwardArgs&, const AttentionPart&);

// bf16 with f32 statistics, for an architecture as 90 (compute capability 9.0).
std::shared_ptr<cudnn_frontend::graph::Graph> MakeGraph(const GraphShape&,
                                                        int architecture);

}  // namespace delink::cuda
