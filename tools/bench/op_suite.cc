#include "tools/bench/op_suite.h"

#include <algorithm>
#include <memory>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/buffer.h"

namespace delink::bench {
namespace {

// All sets together take more than three times the largest cache.
int64_t SetsOf(int64_t bytes, int64_t cache_bytes, bool quick) {
  if (quick) return 1;
  return 1 + 3 * cache_bytes / std::max<int64_t>(bytes, 1);
}

}  // namespace

void* Pieces::TakePositive(int64_t elements, DType dtype) {
  void* const piece = Take(elements, dtype);
  if (!dry()) target_->Fill(piece, elements * SizeOf(dtype), true);
  return piece;
}

void Pieces::Write(void* piece, const void* values, int64_t bytes) {
  if (dry()) return;
  target_->device().CopyFromHost(target_->stream(), piece, values, bytes);
  target_->stream().Synchronize();
}

absl::StatusOr<OpMeasure> MeasureOp(const OpCase& op, Target& target,
                                    const Machine& machine, bool quick) {
  Pieces count;
  op.make(count);
  const int64_t sets = SetsOf(count.bytes(), machine.cache_bytes, quick);
  DELINK_ASSIGN_OR_RETURN(
      const Buffer memory,
      Buffer::Allocate(target.device(), sets * count.bytes(), "operands"));
  target.Fill(memory.data(), memory.bytes());
  std::vector<OpCall> calls;
  for (int64_t i = 0; i < sets; ++i) {
    Pieces pieces(target, memory.at(i * count.bytes()));
    calls.push_back(op.make(pieces));
  }
  OpMeasure measure{.name = op.name,
                    .shape = op.shape,
                    .dtype = op.dtype,
                    .work = calls.front().work};
  measure.seconds = target.Measure(
      [&](int64_t i) { At(calls, i % sets).run(target.stream()); },
      {.seconds = quick ? 0.002 : 0.3, .least = quick ? 3 : 7});
  measure.memory_bound = machine.BoundByMemory(measure.work, op.dtype);
  measure.peak = machine.Roof(measure.work, op.dtype) / measure.seconds.median;
  return measure;
}

}  // namespace delink::bench
