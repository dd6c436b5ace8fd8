#include "framework/step/plan/recompute.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink {
namespace {

// Whether it keeps something for a backward, or begins one.
bool MayRecompute(const Instruction& at) {
  return (at.flags & kForwardOnly) == 0 &&
         (at.op == Op::kForward || at.op == Op::kBackward ||
          at.op == Op::kBackwardInput);
}

}  // namespace

Planner WithRecompute(Planner planner, std::vector<bool> layers) {
  if (layers.empty()) return planner;
  return [planner = std::move(planner), layers = std::move(layers)](
             PassKind kind, const ProgramShape& shape, int32_t stage) {
    Program program = planner(kind, shape, stage);
    DELINK_CHECK_EQ(layers.size(), static_cast<size_t>(shape.layers));
    for (Instruction& at : program.instructions) {
      const bool block = at.layer > 0 && at.layer + 1 < shape.layers;
      if (block && MayRecompute(at) && At(layers, at.layer)) {
        at.flags |= kRecompute;
      }
    }
    return program;
  };
}

}  // namespace delink
