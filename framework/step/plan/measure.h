// Measures what each layer needs for a visit, by running it on the meta device
// instead of the training device: the same code plans its memory and counts its
// work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/device/work.h"
#include "framework/module/param_store.h"
#include "framework/module/sequential.h"
#include "framework/step/program/instruction.h"

namespace delink {

// What one visit works on.
struct BatchShape {
  int64_t micro_batch = 1;      // B, sequences
  int64_t seq = 1;              // T, tokens
  bool masked = false;          // rows hold several documents, and say which
  bool all_counted = false;     // VisitInputs::all_counted
  bool deterministic = true;    // VisitInputs::deterministic
  bool remake = true;           // VisitInputs::remake
  double expert_room = 0;       // VisitInputs::expert_room
  bool expert_overlap = false;  // VisitInputs::expert_overlap
  bool same_tokens = false;     // VisitGroups::same_tokens
  // Ranks between which the tokens of a row are cut (engine/context_cut.h).
  int64_t context = 1;
  int64_t tokens() const { return micro_batch * seq; }
  // The tokens that a rank has, of each row and of all rows.
  int64_t local_seq() const { return seq / context; }
  int64_t local_tokens() const { return micro_batch * local_seq(); }
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

// The calls of kernels in visits of one layer, with the shapes of one rank.
// Experts are counted as if the rows that a rank has room for were all there,
// and rows of several documents as one document (layers/kernels/work.h).
// Kernels of ops that are not part of Delink are not listed
// (layers/kernels/kernel_list.h).
struct LayerCalls {
  // Gradients of weights are written, not added to. Of
  // the last layer with of[kRecord], which makes gradients too.
  std::array<std::vector<KernelCall>, kPhases> of;  // by Phase
  std::vector<KernelCall> again;  // of kRecord where VisitInputs::again is set
  // By slab of the layer, for the first slab of each part: as of[kBackward], if
  // the gradients of that part alone are added to. Of the last layer with
  // of[kRecord], which makes gradients too. Empty for a part's other slabs.
  std::vector<std::vector<KernelCall>> added;
  friend bool operator==(const LayerCalls&, const LayerCalls&) = default;
};

struct LayerPlan {
  VisitPlan visits;  // halves of backward only for blocks
  Shape input;       // [B, T] i32 for the prologue, else [B, T, D]; T is of the
                     // context's part. With `sequence` [1, B T / tensor, D]
  Shape output;      // of the prologue and blocks
  double flops = 0;
  double backward_flops = 0;
  double weight_flops = 0;  // of those, the second half's
  VisitExchanges exchanges;
  int64_t sums = 0;  // Tape::Sums
  // Shared by copies and by like layers; null if only work was measured.
  std::shared_ptr<const LayerCalls> calls;
};

// The FLOPs of an instruction of the layer; `recompute` is the forward that its
// backward repeats. All 0 if it is no visit.
struct VisitFlops {
  double forward = 0, backward = 0, recompute = 0;
};
VisitFlops FlopsOf(const LayerPlan& layer, const Instruction& at);

// The calls of an instruction of the layer; none if it is no visit. `written`
// is Analysis::written of the instruction. `take` gets lists and how often each
// counts, which may be -1: the calls are the sum.
void ForEachCalls(
    const LayerPlan& layer, const Instruction& at,
    const std::vector<bool>& written,
    const std::function<void(const std::vector<KernelCall>&, int)>& take);

class MeasuredLayers;

struct MeasureOptions {
  DeviceKind device = DeviceKind::kCpu;  // the kind of the training device
  std::vector<int> visited;              // blocks, as SharingMap::visited
  DType dtype = DType::kF32;             // of weights and activations
  bool bf16_gradients = false;
  BatchShape batch;
  AccumulateFn accumulate = nullptr;
  // Visits are those of `rank` of the mesh, whose data and pipeline axes matter
  // only for its place along the expert axis; `sequence` as in Layout::Options.
  // If pieces of parameters are uneven, the plans of a stage's ranks differ in
  // memory and work.
  Mesh mesh = {};
  int rank = 0;
  bool sequence = false;
  // Measures only shapes and FLOPs, in a fraction of the time.
  bool work_alone = false;
  // Optional: has what was measured before with equal options, and gets what is
  // measured now.
  MeasuredLayers* known = nullptr;
  friend bool operator==(const MeasureOptions&,
                         const MeasureOptions&) = default;
};

// One plan for each layer that is visited, by place. Parameters are left
// unbound. The mesh's context axis says how rows are cut, not the batch's.
std::vector<LayerPlan> MeasureLayers(Sequential& model,
                                     const ParamRegistry& registry,
                                     const MeasureOptions& options);
// The same with a store's device, blocks, types, layout and rank.
std::vector<LayerPlan> MeasureLayers(Sequential& model, const ParamStore& store,
                                     const BatchShape& batch,
                                     AccumulateFn accumulate,
                                     MeasuredLayers* known = nullptr);
// Shapes and FLOPs of the layers of the store's model as if one rank had all of
// it: the model's work, however ranks share it.
std::vector<LayerPlan> MeasureWork(Sequential& model, const ParamStore& store,
                                   const BatchShape& batch,
                                   AccumulateFn accumulate,
                                   MeasuredLayers* known = nullptr);

// What was measured of one model, by options: plans for many ranks and
// placements measure the same layers again and again. Meanwhile the number of
// threads of kernels, which may take scratch for each, must not change.
class MeasuredLayers {
 public:
  // How many are kept.
  size_t count() const { return all_.size(); }

 private:
  friend std::vector<LayerPlan> MeasureLayers(Sequential&, const ParamRegistry&,
                                              const MeasureOptions&);
  std::vector<std::pair<MeasureOptions, std::vector<LayerPlan>>> all_;
  std::shared_ptr<const Layout> layout_;  // of the last
};

}  // namespace delink
