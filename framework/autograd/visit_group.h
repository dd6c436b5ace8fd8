// Ranks that work on the same visit, each on its part: of the layer's weights
// (tensor parallelism), of its tokens (context parallelism) or of its experts.
// Ops exchange data with the other ranks through a VisitGroup, as part of the
// visit.
//
// Contract
// - Order. All ranks of a group run the same ops on the same shapes, and so ask
//   for the same exchanges in the same order. Measuring a visit lists them, on
//   the meta device, where nothing is exchanged.
// - Streams. An exchange begins after all work that the tape's stream got
//   before the call; work that the stream gets later sees its result. A call
//   may wait for the other ranks on the host.
// - Memory. Addresses are the device's; `send` and `recv` do not overlap.
// - Determinism. Sums are taken in the order of ranks; those of bf16 in f32,
//   rounded once. All ranks of an AllReduce get the same bits.
// - Errors. The group keeps the first, and exchanges nothing after it. The
//   caller that drives the visit asks for it after the visit.
#pragma once

#include <cstdint>

#include "framework/tensor/dtype.h"

namespace delink {

class VisitGroup {
 public:
  VisitGroup() = default;
  VisitGroup(const VisitGroup&) = delete;
  VisitGroup& operator=(const VisitGroup&) = delete;
  virtual ~VisitGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;  // at least 2

  // buffer: size() * count elements, a rank's own at rank() * count.
  virtual void AllGather(void* buffer, int64_t count, DType dtype) = 0;
  // send: size() * count elements; recv, count: the sum of all ranks' chunk
  // number rank(). kF32, kF64, kBF16.
  virtual void ReduceScatter(const void* send, void* recv, int64_t count,
                             DType dtype) = 0;
  // The group is nodes() runs of neighbours, each on one machine; 1: machines
  // do not matter. `kNodes`: the ranks at this one's place in each of them;
  // `kNode`: those of its own.
  enum class Among : uint8_t { kAll, kNodes, kNode };
  virtual int nodes() const { return 1; }
  int CountOf(Among among) const {
    return among == Among::kAll     ? size()
           : among == Among::kNodes ? nodes()
                                    : size() / nodes();
  }
  // send, recv: CountOf(among) * count elements. Chunk r of `send` goes to
  // number r of them, whose chunk for this rank becomes chunk r of `recv`. The
  // exchange ends with Finish of the number that is returned; until then, which
  // must be in the same visit, nobody may touch its memory, and other exchanges
  // may begin.
  virtual int64_t BeginAllToAll(const void* send, void* recv, int64_t count,
                                DType dtype, Among among) = 0;
  virtual void Finish(int64_t begun) = 0;
  // In place. kF32, kF64.
  enum class Reduction : uint8_t { kSum, kMax };
  virtual void AllReduce(void* buffer, int64_t count, DType dtype,
                         Reduction reduction) = 0;
};

// The groups of a visit; null if the rank is alone.
struct VisitGroups {
  VisitGroup* tensor = nullptr;
  VisitGroup* context = nullptr;
  // May have ranks of several data places, each with its own samples. A rank
  // gives its part of the gradient of experts for the tokens of its own.
  VisitGroup* expert = nullptr;
  // Between products that are cut, each rank of `tensor` has only its own rows
  // of an activation, as [1, B T / size(), D]: piece rank() of size() equal
  // pieces of the [B, T] tokens in order. Without `sequence` all have all rows.
  bool sequence = false;
  // All ranks of `expert` have the same tokens. Without `same_tokens` each has
  // its own.
  bool same_tokens = false;
};

}  // namespace delink
