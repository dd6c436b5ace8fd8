#include "recipes/bench/op_suite.h"

#include <algorithm>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/tensor/buffer.h"

namespace delink::bench {
namespace {

// Fills memory with numbers of either sign between 1/16 and 1: as bf16, and
// also as f32 and f64, whose upper half is the like. None is denormal, which
// would slow arithmetic down.
void FillWithNumbers(void* memory, int64_t bytes) {
  auto* const values = static_cast<uint16_t*>(memory);
  uint32_t state = 1;
  for (int64_t i = 0; i < bytes / 2; ++i) {
    state = state * 1664525U + 1013904223U;
    const uint32_t sign = state >> 31 << 15;
    values[i] = static_cast<uint16_t>(sign | (0x3d80U + (state >> 16) % 0x200));
  }
}

// What all sets take together is several times the largest cache.
int64_t SetsOf(int64_t bytes, int64_t cache_bytes, bool quick) {
  if (quick) return 1;
  return std::max<int64_t>(1, 3 * cache_bytes / std::max<int64_t>(bytes, 1));
}

}  // namespace

absl::StatusOr<OpMeasure> MeasureOp(const OpCase& op, const Machine& machine,
                                    bool quick) {
  Pieces count(nullptr);
  op.make(count);
  const int64_t sets = SetsOf(count.bytes(), machine.cache_bytes, quick);
  const std::unique_ptr<Device> device = NewCpuDevice();
  const std::unique_ptr<Stream> stream = device->NewStream();
  DELINK_ASSIGN_OR_RETURN(const Buffer memory,
                          Buffer::Allocate(*device, sets * count.bytes()));
  FillWithNumbers(memory.data(), memory.bytes());
  std::vector<OpCall> calls;
  for (int64_t i = 0; i < sets; ++i) {
    Pieces pieces(static_cast<char*>(memory.at(i * count.bytes())));
    calls.push_back(op.make(pieces));
    if (calls.back().prepare) calls.back().prepare();
  }
  OpMeasure measure{.name = op.name,
                    .shape = op.shape,
                    .dtype = op.dtype,
                    .work = calls.front().work};
  measure.seconds = Repeat(
      [&](int64_t i) { calls[static_cast<size_t>(i % sets)].run(*stream); },
      {.seconds = quick ? 0.002 : 0.3, .least = quick ? 3 : 7});
  measure.memory_bound = machine.BoundByMemory(measure.work, op.dtype);
  measure.peak = machine.Roof(measure.work, op.dtype) / measure.seconds.median;
  return measure;
}

}  // namespace delink::bench
