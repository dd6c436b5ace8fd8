#include "framework/step/plan/basic.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/check.h"

namespace delink {
namespace {

Instruction Visit(Op op, int32_t layer, int32_t micro_batch, uint8_t flags) {
  return {.op = op, .flags = flags, .layer = layer, .micro_batch = micro_batch};
}

Instruction OnSlab(const ProgramShape& shape, Op op, int32_t slab) {
  Instruction instruction{.op = op, .slab = slab};
  instruction.lane = LaneOf(shape, instruction);
  return instruction;
}

// Forward, loss and backward of all micro-batches.
std::vector<Instruction> PlanVisits(const ProgramShape& shape,
                                    const BasicPlanOptions& options) {
  const int32_t last = shape.layers - 1;
  const int32_t count = shape.micro_batches;
  // A run of micro-batches goes through the layers together: one at a time, or
  // all.
  const int32_t run = options.order == MicroBatchOrder::kLayerMajor ? count : 1;
  const auto flags = [&](int32_t layer) -> uint8_t {
    return options.recompute && layer > 0 ? kRecompute : 0;
  };
  std::vector<Instruction> visits;
  for (int32_t begin = 0; begin < count; begin += run) {
    const int32_t end = begin + run;
    for (int32_t layer = 0; layer < last; ++layer) {
      for (int32_t m = begin; m < end; ++m) {
        visits.push_back(Visit(Op::kForward, layer, m, flags(layer)));
      }
    }
    for (int32_t m = begin; m < end; ++m) {
      visits.push_back(Visit(Op::kLoss, last, m, 0));
    }
    for (int32_t layer = last - 1; layer >= 0; --layer) {
      for (int32_t m = begin; m < end; ++m) {
        visits.push_back(Visit(Op::kBackward, layer, m, flags(layer)));
      }
    }
  }
  return visits;
}

// The slabs in the order in which a forward first needs them.
std::vector<int32_t> SlabsInForwardOrder(const ProgramShape& shape) {
  std::vector<int32_t> order;
  std::vector<bool> seen(shape.slabs, false);
  for (const auto& slabs : shape.slabs_of_layer) {
    for (const int32_t slab : slabs) {
      if (!seen[slab]) order.push_back(slab);
      seen[slab] = true;
    }
  }
  return order;
}

void CheckPlannable(const ProgramShape& shape) {
  DELINK_CHECK_GE(shape.layers, 2);
  DELINK_CHECK_GE(shape.micro_batches, 1);
  DELINK_CHECK_EQ(shape.slabs_of_layer.size(), size_t(shape.layers));
  DELINK_CHECK_EQ(shape.gathers.size(), size_t(shape.slabs));
}

Program PlanForwards(PassKind kind, const ProgramShape& shape) {
  CheckPlannable(shape);
  Program program{.shape = shape, .kind = kind};
  std::vector<Instruction>& out = program.instructions;
  const int32_t last = shape.layers - 1;
  for (int32_t m = 0; m < shape.micro_batches; ++m) {
    for (int32_t layer = 0; layer < last; ++layer) {
      out.push_back(Visit(Op::kForward, layer, m, kForwardOnly));
      if (kind == PassKind::kDiagnosis) {
        out.push_back(Visit(Op::kInspect, layer, m, 0));
      }
    }
    out.push_back(Visit(Op::kLoss, last, m, kForwardOnly));
  }
  out.push_back({.op = Op::kSum});
  return program;
}

}  // namespace

Program PlanStep(const ProgramShape& shape, const BasicPlanOptions& options) {
  CheckPlannable(shape);
  const std::vector<Instruction> visits = PlanVisits(shape, options);
  std::vector<int32_t> last_contribution(shape.slabs, -1);
  for (size_t i = 0; i < visits.size(); ++i) {
    if (visits[i].op == Op::kForward) continue;
    for (const int32_t slab : shape.slabs_of_layer[visits[i].layer]) {
      last_contribution[slab] = static_cast<int32_t>(i);
    }
  }
  Program program{.shape = shape};
  std::vector<Instruction>& out = program.instructions;
  std::vector<Instruction> late;
  for (size_t i = 0; i < visits.size(); ++i) {
    out.push_back(visits[i]);
    if (visits[i].op == Op::kForward) continue;
    for (const int32_t slab : shape.slabs_of_layer[visits[i].layer]) {
      if (last_contribution[slab] != static_cast<int32_t>(i)) continue;
      out.push_back(OnSlab(shape, Op::kReduce, slab));
      // No lane waits for another in its backward.
      (out.back().lane == Lane::kNetwork ? late : out)
          .push_back(OnSlab(shape, Op::kSquares, slab));
    }
  }
  out.insert(out.end(), late.begin(), late.end());
  out.push_back({.op = Op::kNorm});
  for (const int32_t slab : SlabsInForwardOrder(shape)) {
    out.push_back(OnSlab(shape, Op::kUpdate, slab));
    if (shape.gathers[slab]) {
      out.push_back(OnSlab(shape, Op::kFetch, slab));
    }
  }
  return program;
}

Program PlanGradients(const ProgramShape& shape,
                      const BasicPlanOptions& options) {
  Program program = PlanStep(shape, options);
  program.kind = PassKind::kGradients;
  std::erase_if(program.instructions, [](const Instruction& at) {
    return at.op == Op::kUpdate || at.op == Op::kFetch;
  });
  return program;
}

Program PlanProbe(const ProgramShape& shape, const BasicPlanOptions& options) {
  Program program{.shape = shape, .kind = PassKind::kProbe};
  program.shape.micro_batches = 1;
  CheckPlannable(program.shape);
  std::vector<Instruction>& out = program.instructions;
  for (const Instruction& visit : PlanVisits(program.shape, options)) {
    out.push_back(visit);
    if (visit.op != Op::kBackward) continue;
    const std::vector<int32_t> shared = SharedSlabsOf(shape, visit.layer);
    if (!shared.empty()) out.back().flags |= kApart;
    for (const int32_t slab : shared) {
      out.push_back(Visit(Op::kProbe, visit.layer, 0, 0));
      out.back().slab = slab;
    }
  }
  out.push_back({.op = Op::kSum});
  return program;
}

Program PlanEvaluation(const ProgramShape& shape) {
  return PlanForwards(PassKind::kEvaluation, shape);
}

Program PlanDiagnosis(const ProgramShape& shape) {
  return PlanForwards(PassKind::kDiagnosis, shape);
}

Planner BasicPlanner(const BasicPlanOptions& options) {
  return [options](PassKind kind, const ProgramShape& shape) {
    switch (kind) {
      case PassKind::kStep:
        return PlanStep(shape, options);
      case PassKind::kGradients:
        return PlanGradients(shape, options);
      case PassKind::kEvaluation:
        return PlanEvaluation(shape);
      case PassKind::kProbe:
        return PlanProbe(shape, options);
      case PassKind::kDiagnosis:
        return PlanDiagnosis(shape);
    }
    DELINK_CHECK(false) << "no plan of " << ToString(kind);
    return Program();
  };
}

}  // namespace delink
