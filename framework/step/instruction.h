// Whatever runs over a model, an optimizer step, an evaluation, a probe, is a
// program: the list of instructions that a rank executes for it, again and
// again. Planners (framework/step/plan and others) write it, AnalyzeProgram
// derives what must wait for what, the validator proves it, the engine runs it,
// and a trace of a real step lines up with it one to one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/visit_exchange.h"

namespace delink {

enum class Op : uint8_t {
  kGather,    // slab: after kUpdate of a shard of weights that are whole: they
              // come together over the slab's ranks
  kFetch,     // Planes of a slab: it comes to a copy, where compute reads it
  kTake,      // gradient of a slab: a copy, of which nothing is written yet
  kEvict,     // Planes of a slab: what was written in its copy goes home
  kRelease,   // Planes of a slab: the copy may be reused
  kForward,   // layer, micro-batch
  kLoss,      // the last layer, forward and backward in one
  kBackward,  // layer, micro-batch; recomputes first where the flag says so
  kBackwardInput,   // layer, micro-batch: the first half of a block's backward:
                    // the gradient of its input, for the layer before
  kBackwardWeight,  // the second half: the gradients of its weights, from what
                    // the first has kept; others may be between them
  kSend,  // layer, micro-batch: the layer's input goes to its stage, another
          // one; with kOfGradient that input's gradient, from the layer's stage
  kRecv,  // the other end: it comes to this stage
  kStoreSlot,
  kLoadSlot,  // layer, micro-batch: its slot goes to the host, and comes back
  kReduce,    // slab: its gradient is complete here; combine it over its group
  kSquares,   // slab: the squares of its reduced gradient are summed up
  kNorm,      // the global gradient norm and finiteness are known from here on
  kUpdate,    // slab: optimizer step on the owned shard
  kSave,      // slab: a consistent snapshot for a checkpoint
  kInspect,   // layer, micro-batch: whether what its forward gave is finite
  kProbe,     // layer, micro-batch, slab: the square of the gradient that the
              // layer's backward kept apart; and the slab's gets that added
  kSum,       // the few numbers that a pass finds, over all ranks
};

const char* ToString(Op op);

// Lanes run at the same time; each keeps its order.
enum class Lane : uint8_t {
  kCompute,
  kNetwork,       // collectives
  kToNext,        // activations to the stage of the layers behind, from that
  kFromPrevious,  // of the layers before; round the corner, where a stage has
  kToPrevious,    // several chunks, as well
  kFromNext,      // and their gradients
  kIn,            // to what visits work on: copies of weights, slots
  kOut,           // from there, and from copies of gradients
  kUpdatesIn,     // to copies that updates work on, and of gradients
  kUpdatesOut,    // from the former
  kUpdates,       // of the device, beside what compute does
  kHost,          // what the host computes
};
inline constexpr int kLanes = 12;

const char* ToString(Lane lane);
// Over the bus between the host and the device, of which two lanes share a way.
bool IsToDevice(Lane lane);
bool IsToHost(Lane lane);
inline bool IsOverBus(Lane lane) { return IsToDevice(lane) || IsToHost(lane); }

enum Flags : uint8_t {
  kRecompute = 1,    // kForward keeps nothing but the boundary; kBackward, or
                     // kBackwardInput, runs the layer's forward again first
  kForwardOnly = 2,  // kForward and kLoss: no backward follows, kLoss writes
                     // no gradient
  kApart = 4,        // kBackward: its gradients of slabs that other blocks use
                     // too go to a place of their own, where kProbe takes them
  kOfGradient = 8,   // kSend, kRecv; of planes of a slab (PlaneSet): which
  kOfState = 16,
  kOfUpdated = 32,
};

// What of a slab has a place of its own. kUpdated are its weights again, in
// the copy in which the device updates them: visits have theirs, so that
// neither waits for the other's copies.
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

// Of a kFetch, kTake, kEvict or kRelease.
bool IsOfPlanes(const Instruction& instruction);
PlaneSet PlaneSetOf(const Instruction& instruction);
uint8_t FlagOf(PlaneSet planes);
// Whether they are weights, whoever works on them.
bool IsOfWeights(PlaneSet planes);
// Whether updates alone work on a copy of them.
bool IsOfUpdates(PlaneSet planes);

// Whether it computes a layer: a forward, a loss, a backward or a half of one.
bool IsVisit(const Instruction& instruction);
// Whether it makes gradients of weights: a kBackward, a kBackwardWeight, a
// kLoss that is not kForwardOnly.
bool HasGradients(const Instruction& instruction);
// Whether it makes that of the layer's input: the first two, and a
// kBackwardInput in place of kBackwardWeight.
bool HasInputGradient(const Instruction& instruction);

// "F(3,a)", "Loss(a)", "B(3,a)", "BI(3,a)", "Reduce(7)", "Norm": as in
// docs/step-program.md and in traces. Micro-batches are letters (a..z, aa, ab,
// ...), so that they cannot be taken for layers; a visit that recomputes ends
// in r, one that keeps gradients apart in p: "B(3,a)r", "B(3,a)rp"; what sends
// or receives a gradient in g: "Send(4,a)g", as what is of a slab's gradient:
// "Evict(7)g"; of its state in s, of its weights for an update in u:
// "Fetch(7)s".
std::string ToString(const Instruction& instruction);

enum class MicroBatchOrder : uint8_t {
  kMicroBatchMajor,  // a micro-batch goes forward and backward, then the next
  kLayerMajor,       // all micro-batches of a layer before the next layer
};

// All that planners, analysis and validator need to know of a model, its
// sharing, its placement and its ranks: the same on every rank, of all stages
// of a pipeline. Layers are counted as they are visited (Layout::visited): 0 is
// the prologue, layers - 1 the epilogue. Slabs are counted as
// Layout::program_slabs has them. A pure value.
struct ProgramShape {
  int32_t layers = 0;
  int32_t slabs = 0;
  // Ascending; every slab is used by at least one layer.
  std::vector<std::vector<int32_t>> slabs_of_layer;
  // By slab: its weights are whole but its update is sharded, so that a
  // kGather follows its kUpdate.
  std::vector<bool> gathers;
  // By set of planes and slab: the class of the copies in which the device
  // works on it, from kFetch or kTake to kRelease, its home being elsewhere;
  // -1: at home. Of a set empty: all of them.
  std::array<std::vector<int32_t>, kPlaneSets> copy_class;
  std::vector<int32_t> copies;  // by class: how many there is room for
  // By slab: the host updates it, at home, where none of its parts is on the
  // device. Empty: none.
  std::vector<bool> host_updates;
  // By slab: the device updates it in a lane of its own, so that what comes for
  // that, and the update, go on under the next step's first visits. Of slabs
  // that HasCopiesForUpdates. Empty: none.
  std::vector<bool> late_updates;
  // By layer, never falling: its piece of the pipeline. Chunk c is of stage
  // c % stages; no stage is without. Empty: all of one.
  std::vector<int32_t> chunk_of_layer;
  // By layer, from 0 on: layers whose slots are alike are of one class. Empty:
  // the prologue, the blocks, the epilogue.
  std::vector<int32_t> slot_class;
  int32_t micro_batches = 1;
  int32_t ranks = 1;  // of each stage: along tensor, context and data axis
  int32_t stages = 1;
  // Of `ranks` those that work on the same visits, with their weights or their
  // tokens cut. A rank's place in its stage is here tensor place + tensor x
  // (context place + context x data place).
  int32_t tensor = 1, context = 1;
  // By slab: in how many pieces it is cut along the tensor axis, neighbours
  // having the same one where there are more places than pieces. Empty: none.
  std::vector<int32_t> slab_pieces;
  // By layer; empty: visits exchange nothing.
  std::vector<VisitExchanges> exchanges;
  // By slab, in order: what its kUpdate exchanges, on ranks beside each other
  // that hold its state. Empty: nothing.
  std::vector<std::vector<VisitExchange>> update_exchanges;
  friend bool operator==(const ProgramShape&, const ProgramShape&) = default;
};

int32_t ChunkOf(const ProgramShape& shape, int32_t layer);
int32_t StageOf(const ProgramShape& shape, int32_t layer);
int32_t SlotClassOf(const ProgramShape& shape, int32_t layer);
int32_t SlotClasses(const ProgramShape& shape);  // how many
int32_t CopyClassOf(const ProgramShape& shape, PlaneSet planes, int32_t slab);
// Of the weights that the device writes in an update.
PlaneSet UpdatedSet(const ProgramShape& shape, int32_t slab);
// Whether anything comes to the device when it is updated there.
bool HasCopiesForUpdates(const ProgramShape& shape, int32_t slab);
bool HostUpdates(const ProgramShape& shape, int32_t slab);
bool UpdatesLate(const ProgramShape& shape, int32_t slab);
int32_t PiecesOf(const ProgramShape& shape, int32_t slab);

// By slab: how many blocks use it.
std::vector<int32_t> SharersOf(const ProgramShape& shape);

// The slabs of a block that other blocks use as well, ascending; none of the
// prologue and the epilogue.
std::vector<int32_t> SharedSlabsOf(const ProgramShape& shape, int32_t layer);

// What a program is run for.
enum class PassKind : uint8_t {
  kStep,        // one optimizer step
  kGradients,   // one without its updates: the gradients are there, reduced
  kEvaluation,  // the loss alone: forward only, dropout off
  kProbe,       // one micro-batch: how far gradients agree that are one slab's
  kDiagnosis,   // forward only, as a step's: where a number is not finite
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
