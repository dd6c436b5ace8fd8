// What a program implies: which instruction waits for which, which write to a
// gradient is the first of a step, and which slot and gradient boundary each
// visit uses. Derived from the effects of instructions as a compiler derives
// hazards on registers; nobody writes these by hand.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/program/instruction.h"

namespace delink {

enum class ResourceKind : uint8_t {
  kWeight,        // index: slab
  kGradient,      // index: slab
  kState,         // index: slab; master and moments
  kWhole,         // index: slab; the whole gradient, if it is sharded
  kWeightCopy,    // index: slab; the copy that is there
  kGradientCopy,  // index: slab
  kStateCopy,     // index: slab
  kUpdatedCopy,   // index: slab
  kWeightAt,      // index: slab; which copy has them, for visits and updates
  kGradientAt,    // index: slab
  kStateAt,       // index: slab
  kSquares,       // index: slab; the sums of its gradient's squares
  kSlot,          // index: layer, micro_batch: input boundary and what is saved
  kStored,        // index: layer, micro_batch: a slot on the host
  kHeld,          // index: layer, micro_batch: what kBackwardInput keeps
  kBoundary,      // index: chunk, micro_batch: the gradient between two layers
  kNorm,          // the norm, clip factor and finiteness of the step
  kLoss,          // loss sum and token count of the step
  kApart,         // gradients that a visit kept apart
  kFound,         // other numbers that kSum combines
  kScratch,       // of a lane: its workspace; index: the lane
};

struct Resource {
  ResourceKind kind;
  int32_t index = -1;
  int32_t micro_batch = -1;
  friend auto operator<=>(const Resource&, const Resource&) = default;
};

struct Effects {
  std::vector<Resource> reads;
  std::vector<Resource> writes;  // a read-modify-write is listed here only
};

// Planes of a slab that the device works on in an instruction: in a copy if the
// shape has copies of them, else at home.
struct PlaneUse {
  PlaneSet planes = PlaneSet::kWeight;
  int32_t slab = -1;
  bool writes = false;  // also where it reads
  friend bool operator==(const PlaneUse&, const PlaneUse&) = default;
};

// A visit uses the weights of shape.slabs_of_layer[layer], then the gradients
// that it adds to. kReduce, kProbe and kSquares use the gradient. A kUpdate on
// the device uses gradient, weights and state; the kGather behind it uses the
// weights. If the gradient is sharded, visits and kProbe use the whole one
// instead (WholesUsed).
std::vector<PlaneUse> PlanesUsed(const ProgramShape& shape,
                                 const Instruction& instruction);

// Slabs with sharded gradients whose whole gradient an instruction writes: a
// visit adds to it, a kProbe too, a kReduce sums it over the ranks.
std::vector<int32_t> WholesUsed(const ProgramShape& shape,
                                const Instruction& instruction);

// What an instruction touches.
Effects EffectsOf(const ProgramShape& shape, const Instruction& instruction);

// An earlier instruction that must be complete. With previous_step it is the
// one of the step before: the program is cyclic.
struct Dependency {
  int32_t instruction = 0;
  bool previous_step = false;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

struct Analysis {
  // By instruction, oldest first, at most one per other lane: dependencies that
  // the lane's order or others imply are left out. In the first step those on
  // the step before are met from the start.
  std::vector<std::vector<Dependency>> dependencies;
  // By instruction, for those that HasGradients: for each of
  // shape.slabs_of_layer[layer], whether the gradient already has contributions
  // of this step (never, if it is kept apart). For kProbe: the same of its
  // slab. For kReduce of a slab with ReducesParts: whether the shard already
  // has the sum of other parts of this step. Empty for others.
  std::vector<std::vector<bool>> written;
  // By instruction, for those that HasGradients: slabs of which other parts
  // were reduced in this step (ReducesParts). Their whole gradients are zeroed
  // first. They have contributions, as the other slabs of the layer do: ops
  // write all gradients of a parameter alike.
  std::vector<std::vector<int32_t>> cleared;
  // slot_of[layer][micro_batch]: a number in [0, slots[pool_of[layer]]). A slot
  // is taken when its input boundary is written. It is free after the visit's
  // backward or second half (or its loss, or its forward if the program has no
  // backward of the visit). Each class of slots is a pool. If there are several
  // stages, one more pool is for inputs that are sent to layers of other
  // stages; such a slot is free after the next kSend of its lane, or at the end
  // (slot_scan.h). From its kStoreSlot to its kLoadSlot a slot is free for
  // others.
  std::vector<std::vector<int32_t>> slot_of;
  std::vector<int32_t> pool_of;  // by layer
  std::vector<int32_t> slots;    // by pool
  // stored_of[layer][micro_batch]: a number in [0, stored[SlotClassOf(layer)]),
  // the slot's place on the host from its kStoreSlot to its kLoadSlot; -1: it
  // is not stored.
  std::vector<std::vector<int32_t>> stored_of;
  std::vector<int32_t> stored;  // by class
  // By instruction, if the shape has copies: numbers of copies in their class.
  // One that IsOfPlanes has one copy, others have one for each of PlanesUsed
  // (-1: at home). kFetch and kTake take the copy that has been free for
  // longest; it is free after kRelease.
  std::vector<std::vector<int32_t>> copies_of;
  // whole_of[slab]: a number in [0, wholes[WholeClassOf(slab)]), the memory of
  // its whole gradient from the first instruction that writes it to the last
  // that needs it; if parts are reduced, from part to part the same, which is
  // others' in between. -1: none, or no instruction. Memory that a kReduce
  // leaves is free only after the next slabs' visits have begun, so that these
  // need not wait for the exchange (slot_scan.h).
  std::vector<int32_t> whole_of;
  std::vector<int32_t> wholes;  // by class
  // held_of[layer][micro_batch]: a number in [0, held[SlotClassOf(layer)]), the
  // place of what is kept from the first half of the visit's backward to the
  // second; -1: it is not in halves.
  std::vector<std::vector<int32_t>> held_of;
  std::vector<int32_t> held;  // by class
  // boundary_of[chunk][micro_batch]: the gradient boundary that it uses from
  // its loss or kRecv to the prologue's backward or, if the gradient is sent,
  // until the next kSend of its lane or the end (slot_scan.h). -1: no backward,
  // or a chunk of another stage.
  std::vector<std::vector<int32_t>> boundary_of;
  int32_t boundaries = 0;
};

// Whether a kReduce adds to what the shard has.
inline bool Adds(const Analysis& analysis, int64_t reduction) {
  const std::vector<bool>& written =
      analysis.written[static_cast<size_t>(reduction)];
  return !written.empty() && written.front();
}

// The program must be one that the validator passes. O(instructions).
Analysis AnalyzeProgram(const Program& program);

}  // namespace delink
