// Every run over a model (an optimizer step, an evaluation, a probe) is a
// program: a list of instructions that a rank executes, again and again.
// Planners (framework/step/plan and others) write programs, AnalyzeProgram
// derives their dependencies, the validator proves them, the engine runs them,
// and a trace of a real step matches its program one to one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/program/visit_exchange.h"

namespace delink {

enum class Op : uint8_t {
  kGather,    // slab: all-gathers the weights over the slab's ranks, after each
              // has updated its shard
  kFetch,     // planes of a slab: copied from the host to a copy on the device;
              // sharded weights: all-gathered into a copy
  kTake,      // gradient of a slab: takes a copy; nothing was added to it yet
  kEvict,     // planes of a slab: their copy is written back to the host
  kRelease,   // planes of a slab: the copy may be reused
  kForward,   // layer, micro-batch
  kLoss,      // the last layer, forward and backward in one
  kBackward,  // layer, micro-batch; recomputes first if the flag says so
  kBackwardInput,   // layer, micro-batch: the first half of a block's backward:
                    // the gradient of its input, for the layer before
  kBackwardWeight,  // the second half: the gradients of the weights, from what
                    // the first half kept; other visits may run in between
  kSend,  // layer, micro-batch: sends the layer's input to the layer's stage;
          // with kOfGradient: sends that input's gradient from there
  kRecv,  // receives on this stage what the kSend of another sends
  kStoreSlot,
  kLoadSlot,  // layer, micro-batch: copies the slot to the host, and back
  kReduce,    // slab: combines its complete gradient over its group
  kSquares,   // slab: sums the squares of its reduced gradient
  kNorm,      // the global gradient norm and finiteness are known from here on
  kUpdate,    // slab: optimizer step on the owned shard
  kSave,      // slab: a consistent snapshot for a checkpoint
  kInspect,   // layer, micro-batch: whether its forward's output is finite
  kProbe,     // layer, micro-batch, slab: takes the square of the gradient that
              // its backward kept apart, and adds this gradient to the slab's
  kSum,       // combines over all ranks the few numbers that a pass finds
};

const char* ToString(Op op);

// Lanes run at the same time; each keeps its order.
enum class Lane : uint8_t {
  kCompute,
  kNetwork,       // collectives
  kGather,        // of them those that gather sharded weights for visits
  kToNext,        // activations; if stages have several chunks, also from the
  kFromPrevious,  // last stage to the first
  kToPrevious,    // their gradients, the other way
  kFromNext,
  kIn,          // from the host, for visits: weights, slots
  kOut,         // back to the host: these, and gradients
  kUpdatesIn,   // from the host: gradients; state and weights for updates
  kUpdatesOut,  // back to the host: state and updated weights
  kUpdates,     // updates on the device that overlap with compute
  kHost,        // what the host computes
};
inline constexpr int kLanes = 13;

const char* ToString(Lane lane);
// Which way a lane copies over the bus between the host and the device; two
// lanes share each way.
bool IsToDevice(Lane lane);
bool IsToHost(Lane lane);
inline bool IsOverBus(Lane lane) { return IsToDevice(lane) || IsToHost(lane); }

enum Flags : uint8_t {
  kRecompute = 1,    // kForward keeps nothing but the boundary; kBackward, or
                     // kBackwardInput, runs the layer's forward again first
  kForwardOnly = 2,  // kForward and kLoss: no backward follows, kLoss writes
                     // no gradient
  kApart = 4,        // kBackward: writes its gradients of slabs that other
                     // blocks use too to separate memory, which kProbe reads
  kOfGradient = 8,   // kSend, kRecv; of planes of a slab (PlaneSet): which
  kOfState = 16,
  kOfUpdated = 32,
};

// Sets of a slab's planes that are placed and copied together. kUpdated is a
// second copy of the weights, which the device updates: visits have another, so
// that neither waits for the other's copies.
enum class PlaneSet : uint8_t { kWeight, kGradient, kState, kUpdated };
inline constexpr int kPlaneSets = 4;
inline constexpr PlaneSet kAllPlaneSets[kPlaneSets] = {
    PlaneSet::kWeight, PlaneSet::kGradient, PlaneSet::kState,
    PlaneSet::kUpdated};

// Unused fields are -1.
struct Instruction {
  Op op = Op::kForward;
  Lane lane = Lane::kCompute;
  uint8_t flags = 0;
  int32_t layer = -1;
  int32_t slab = -1;
  int32_t micro_batch = -1;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// Whether it is a kFetch, kTake, kEvict or kRelease.
bool IsOfPlanes(const Instruction& instruction);
PlaneSet PlaneSetOf(const Instruction& instruction);
uint8_t FlagOf(PlaneSet planes);
// Whether they are weights, for visits or for updates.
bool IsOfWeights(PlaneSet planes);
// Whether only updates work on a copy of them.
bool IsOfUpdates(PlaneSet planes);

// Whether it computes a layer: a forward, a loss, a backward or a half of one.
bool IsVisit(const Instruction& instruction);
// Whether it makes gradients of weights: a kBackward, a kBackwardWeight, a
// kLoss that is not kForwardOnly.
bool HasGradients(const Instruction& instruction);
// Whether it makes the gradient of the layer's input: a kBackward, a
// kBackwardInput, a kLoss that is not kForwardOnly.
bool HasInputGradient(const Instruction& instruction);

// Whether it first runs the layer's forward again: a kBackward or a
// kBackwardInput with kRecompute.
bool RunsAgain(const Instruction& instruction);

// "F(3,a)", "Loss(a)", "B(3,a)", "BI(3,a)", "Reduce(7)", "Norm": as in
// docs/step-program.md and in traces. Micro-batches are letters (a..z, aa, ab,
// ...), so that they cannot be taken for layers. Suffixes: r recomputes, p
// keeps gradients apart ("B(3,a)rp"); g is of a gradient ("Send(4,a)g",
// "Evict(7)g"), s of a slab's state ("Fetch(7)s"), u of its weights for an
// update.
std::string ToString(const Instruction& instruction);

enum class MicroBatchOrder : uint8_t {
  kMicroBatchMajor,  // a micro-batch goes forward and backward, then the next
  kLayerMajor,       // all micro-batches of a layer before the next layer
};

// All that planners, analysis and validator need to know about a model, its
// sharing, its placement and its ranks. It covers all stages of a pipeline and
// is the same on every rank. Layers are counted as they are visited
// (Layout::visited): 0 is the prologue, layers - 1 the epilogue. Slabs are
// counted as in Layout::program_slabs. A pure value.
struct ProgramShape {
  int32_t layers = 0;
  int32_t slabs = 0;
  // Ascending; every slab is used by at least one layer.
  std::vector<std::vector<int32_t>> slabs_of_layer;
  // By slab: its weights are whole but its update is sharded, so that a
  // kGather follows its kUpdate.
  std::vector<bool> gathers;
  // By slab: this rank has a shard of its weights. Visits work in whole copies,
  // which a kFetch gathers over the slab's ranks; updates work on the shard.
  // Empty: none.
  std::vector<bool> shards;
  // By set of planes and slab: the class of the copies on the device in which
  // it works on planes that are host-resident, or on weights that are sharded,
  // from kFetch or kTake to kRelease. -1: it works on them at home. An empty
  // set: all -1.
  std::array<std::vector<int32_t>, kPlaneSets> copy_class;
  std::vector<int32_t> copies;  // by class: how many there is room for
  // By slab whose gradient is sharded: the class of the memory in which visits
  // sum the whole gradient, from the first write of a step to the kReduce that
  // leaves this rank's shard in the gradient. -1: they sum it in the gradient.
  // Empty: all -1.
  std::vector<int32_t> whole_class;
  // Whether a slab with whole gradients may be reduced several times in a step.
  // Each kReduce then adds what visits have summed since the last one.
  bool reduces_parts = false;
  // By slab: the host updates it in host memory, while the device has no copy
  // of it. Empty: none.
  std::vector<bool> host_updates;
  // By slab: the device updates it in a separate lane, so that the update and
  // its copies overlap the next step's first visits. Only slabs that
  // HasCopiesForUpdates. Empty: none.
  std::vector<bool> late_updates;
  // By layer, never falling: its chunk of the pipeline. Chunk c belongs to
  // stage c % stages; every stage has one. Empty: all layers are one chunk.
  std::vector<int32_t> chunk_of_layer;
  // By layer, from 0 on: layers with like slots share a class. Empty: the
  // classes are the prologue, the blocks and the epilogue.
  std::vector<int32_t> slot_class;
  int32_t micro_batches = 1;
  int32_t ranks = 1;  // of each stage: along tensor, context and data axis
  int32_t stages = 1;
  // How many of `ranks` work on the same visits, with weights (tensor) or
  // tokens (context) cut, or with experts (Mesh::expert). Ranks of a stage are
  // counted as by Mesh::InStage.
  int32_t tensor = 1, context = 1, expert = 1;
  int32_t expert_nodes = 1;  // Mesh::expert_nodes
  // By slab; empty: none is cut.
  std::vector<AxisCut> slab_cuts;
  // By layer; empty: visits exchange nothing.
  std::vector<VisitExchanges> exchanges;
  // By slab, in order: what its kUpdate exchanges along the tensor axis, on
  // ranks that hold its state. Empty: nothing.
  std::vector<std::vector<VisitExchange>> update_exchanges;
  friend bool operator==(const ProgramShape&, const ProgramShape&) = default;
};

int32_t ChunkOf(const ProgramShape& shape, int32_t layer);
int32_t StageOf(const ProgramShape& shape, int32_t layer);
int32_t SlotClassOf(const ProgramShape& shape, int32_t layer);
int32_t SlotClasses(const ProgramShape& shape);  // how many
int32_t CopyClassOf(const ProgramShape& shape, PlaneSet planes, int32_t slab);
int32_t WholeClassOf(const ProgramShape& shape, int32_t slab);
int32_t WholeClasses(const ProgramShape& shape);  // how many
// Whether the slab's gradient may be reduced in parts.
bool ReducesParts(const ProgramShape& shape, int32_t slab);
// Whether its weights are sharded.
bool IsSharded(const ProgramShape& shape, int32_t slab);
// Whether a kFetch gathers over the slab's ranks.
bool GathersWeights(const ProgramShape& shape, const Instruction& instruction);
// The set of weights that an update on the device writes.
PlaneSet UpdatedSet(const ProgramShape& shape, int32_t slab);
// Whether an update on the device needs copies of host-resident planes.
bool HasCopiesForUpdates(const ProgramShape& shape, int32_t slab);
bool HostUpdates(const ProgramShape& shape, int32_t slab);
bool UpdatesLate(const ProgramShape& shape, int32_t slab);
AxisCut CutOf(const ProgramShape& shape, int32_t slab);
// The ranks of a stage, each at its place.
Mesh StageMesh(const ProgramShape& shape);
// Whether visits are those of several ranks together.
bool VisitsTogether(const ProgramShape& shape);

// By slab: how many blocks use it.
std::vector<int32_t> SharersOf(const ProgramShape& shape);

// The slabs of a block that other blocks use as well, ascending; empty for the
// prologue and the epilogue.
std::vector<int32_t> SharedSlabsOf(const ProgramShape& shape, int32_t layer);

// What a program is run for.
enum class PassKind : uint8_t {
  kStep,        // one optimizer step
  kGradients,   // a step without updates: leaves reduced gradients
  kEvaluation,  // the loss alone: forward only, dropout off
  kProbe,       // one micro-batch: how far gradients of a shared slab agree
  kDiagnosis,   // a step's forward: where a number is not finite
};

const char* ToString(PassKind kind);

// What the ranks of a stage execute: equal lists, each over its own layers.
struct Program {
  ProgramShape shape;
  PassKind kind = PassKind::kStep;
  int32_t stage = 0;
  std::vector<Instruction> instructions;
  friend bool operator==(const Program&, const Program&) = default;
};

// One line: the instructions in program order, separated by blanks.
std::string ToString(const Program& program);

}  // namespace delink
