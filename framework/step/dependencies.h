// What a program implies: which instruction waits for which, which write to a
// gradient is the first of a step, and which slot and gradient boundary each
// visit uses. Derived from the effects of instructions as a compiler derives
// hazards on registers; nobody writes these by hand.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/step/instruction.h"

namespace delink {

enum class ResourceKind : uint8_t {
  kWeight,        // index: slab
  kGradient,      // index: slab
  kState,         // index: slab; master and moments
  kWeightCopy,    // index: slab; the copy that is there
  kGradientCopy,  // index: slab
  kStateCopy,     // index: slab
  kUpdatedCopy,   // index: slab
  kWeightAt,      // index: slab; which copy that is, of visits or of an update
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
  kFound,         // what kSum adds up besides
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

// Planes of a slab that the device works on in an instruction: in a copy, where
// the shape has copies of it, else at home.
struct PlaneUse {
  PlaneSet planes = PlaneSet::kWeight;
  int32_t slab = -1;
  bool writes = false;  // also where it reads
  friend bool operator==(const PlaneUse&, const PlaneUse&) = default;
};

// Of a visit the weights of shape.slabs_of_layer[layer], then the gradients
// that it adds to; of what else works on the gradient that; of a kUpdate on the
// device, and the kGather behind it, gradient, weights and state.
std::vector<PlaneUse> PlanesUsed(const ProgramShape& shape,
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
  // By instruction, oldest first; dependencies within the same lane are implied
  // by its order and left out, as are those that others imply: at most one per
  // other lane. In the first step those on the step before hold already.
  std::vector<std::vector<Dependency>> dependencies;
  // By instruction, for those that HasGradients: for each of
  // shape.slabs_of_layer[layer], whether where its gradient goes already holds
  // contributions of this step (never, where it is kept apart); for kProbe of
  // its slab. Empty for others.
  std::vector<std::vector<bool>> written;
  // slot_of[layer][micro_batch]: a number in [0, slots[pool_of[layer]]). A slot
  // is taken when its input boundary is written and free after the visit's
  // backward, its second half where it has two (or loss, or forward where the
  // program has no backward of the visit). Each class of slots is a pool; one
  // more, where there are several stages, is of inputs that leave: of layers
  // that are not here. Such a slot is free after the next kSend of its lane, or
  // at the end (slot_scan.h). From its kStoreSlot to its kLoadSlot it is free
  // for others.
  std::vector<std::vector<int32_t>> slot_of;
  std::vector<int32_t> pool_of;  // by layer
  std::vector<int32_t> slots;    // by pool
  // stored_of[layer][micro_batch]: a number in [0, stored[SlotClassOf(layer)]),
  // of the slot's place on the host from its kStoreSlot to its kLoadSlot; -1
  // where it stays.
  std::vector<std::vector<int32_t>> stored_of;
  std::vector<int32_t> stored;  // by class
  // By instruction, where the shape has copies: of what IsOfPlanes which of its
  // class's copies, of others those of PlanesUsed, -1 at home. A copy is taken
  // by kFetch or kTake, the one that has been free for longest, and free after
  // kRelease.
  std::vector<std::vector<int32_t>> copies_of;
  // held_of[layer][micro_batch]: a number in [0, held[SlotClassOf(layer)]), of
  // what is kept from the first half of the visit's backward to the second; -1
  // where it is not in halves.
  std::vector<std::vector<int32_t>> held_of;
  std::vector<int32_t> held;  // by class
  // boundary_of[chunk][micro_batch]: which of the gradient boundaries it uses,
  // from its loss, or when it comes, to the prologue's backward; where it
  // leaves, until the next kSend of its lane, or the end (slot_scan.h). -1
  // where there is no backward, or the chunk is not here.
  std::vector<std::vector<int32_t>> boundary_of;
  int32_t boundaries = 0;
};

// The program must be one that the validator passes. O(instructions).
Analysis AnalyzeProgram(const Program& program);

}  // namespace delink
