// Ranks that work on the same visit, each on its part: of the layer's weights
// (tensor parallelism) or of its tokens (context parallelism). What ops
// exchange with them goes through here, as part of the visit.
//
// Contract
// - Order. All ranks of a group run the same ops on the same shapes, and so ask
//   for the same exchanges in the same order: a visit's are listed when it is
//   measured, on the meta device, where nothing is exchanged.
// - Streams. An exchange begins behind what the tape's stream was given before
//   the call, and what the stream is given afterwards comes behind its result.
//   A call may wait for the other ranks on the host.
// - Memory. Addresses are the device's; `send` and `recv` do not overlap.
// - Determinism. Sums are in the order of ranks, of bf16 in f32 and rounded
//   once; all ranks of an AllReduce get the same bits.
// - Errors. The first is kept by the group, and nothing is exchanged after it;
//   whoever drives the visit asks for it when that is over.
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
  // In place. kF32, kF64.
  enum class Reduction : uint8_t { kSum, kMax };
  virtual void AllReduce(void* buffer, int64_t count, DType dtype,
                         Reduction reduction) = 0;
};

// Those of a visit; null where the rank is alone.
struct VisitGroups {
  VisitGroup* tensor = nullptr;
  VisitGroup* context = nullptr;
  // Between products that are cut, each rank of `tensor` has its own rows of an
  // activation: of the [B, T] tokens, counted one after the other, piece number
  // rank() of size() even ones, as [1, B T / size(), D]. Else all have all
  // rows.
  bool sequence = false;
};

}  // namespace delink
