// Measures what each layer needs for a visit, by running it on the meta device
// in place of the one that is to train: the same code plans its memory and
// counts its work.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "framework/step/instruction.h"

namespace delink {

// What one visit works on.
struct BatchShape {
  int64_t micro_batch = 1;    // B, sequences
  int64_t seq = 1;            // T, tokens
  bool masked = false;        // rows hold several documents, and say which
  bool deterministic = true;  // VisitInputs::deterministic
  bool remake = true;         // VisitInputs::remake
  int64_t tokens() const { return micro_batch * seq; }
};

struct LayerPlan {
  VisitPlan visits;  // of blocks alone also the halves of backward
  Shape input;       // [B, T] i32 for the prologue, else [B, T, D]
  Shape output;      // of the prologue and blocks
  double flops = 0;
  double backward_flops = 0;
  double weight_flops = 0;  // of those, what the second half of backward has
};

// Of an instruction that is of the layer: what it computes, and of forward what
// its backward repeats. None where it is no visit.
struct VisitFlops {
  double forward = 0, backward = 0, recompute = 0;
};
VisitFlops FlopsOf(const LayerPlan& layer, const Instruction& at);

struct MeasureOptions {
  DeviceKind device = DeviceKind::kCpu;  // of its kind
  std::vector<int> visited;              // blocks, as SharingMap::visited
  DType dtype = DType::kF32;             // of weights and activations
  bool bf16_gradients = false;
  BatchShape batch;
  AccumulateFn accumulate = nullptr;
};

// One plan for each layer that is visited, by place. Parameters are left
// unbound.
std::vector<LayerPlan> MeasureLayers(Sequential& model,
                                     const ParamRegistry& registry,
                                     const MeasureOptions& options);
// For a store's device, blocks and types.
std::vector<LayerPlan> MeasureLayers(Sequential& model, const ParamStore& store,
                                     const BatchShape& batch,
                                     AccumulateFn accumulate);

}  // namespace delink
