// How much memory a stage takes, and where in it everything is: the account
// that is printed before the first step, and that the executor then allocates
// to the byte.
//
// Of the host's memory nothing is in it: neither what is pinned for exchanges
// of a device that they cannot read (stream_communicator.h), for each stream as
// much as its largest, nor the optimizer's or a loader's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/format_bytes.h"
#include "framework/module/param_store.h"
#include "framework/step/measure.h"
#include "framework/step/pass.h"

namespace delink {

// Bytes on this rank's device, by kind (docs/architecture.md, "Memory"), and of
// the host what `host` says.
struct MemoryAccount {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t state = 0;       // of the optimizer, and the master under bf16
  int64_t slots = 0;       // boundaries of forward, what backward reads and
                           // what it holds between its halves
  int64_t boundaries = 0;  // gradients between layers
  int64_t workspace = 0;
  int64_t copies = 0;   // staging of reductions; gradients kept apart
  int64_t fetched = 0;  // copies of planes whose home is the host
  int64_t records = 0;
  int64_t overhead = 0;  // of the device itself (Device::overhead)
  int64_t host = 0;      // of the host: planes that are at home there, slots
                         // that are stored, and what its updates take

  // What both stages of a switch take at once.
  int64_t planes() const { return weights + gradients + state; }
  int64_t activations() const { return slots + boundaries + workspace; }
  // What is allocated.
  int64_t allocated() const {
    return planes() + activations() + copies + fetched + records;
  }
  int64_t total() const { return allocated() + overhead; }
};

// "weights 12.3 MiB, gradients ...", one line.
std::string ToString(const MemoryAccount& account);

// Doubles that travel with the sums of squares in the exchange of the norm: the
// loss, the tokens behind it, the votes.
inline constexpr int64_t kTailSums = 3;

// Sizes of everything the engine allocates.
struct StepMemory {
  BatchShape batch;
  int32_t micro_batches = 1;
  bool recompute = false;      // of some block
  int64_t boundary_bytes = 0;  // of what goes from layer to layer
  // A slot is its input boundary (none for the prologue), then what is saved.
  // What is held between halves of a backward: what forward, run again, has
  // saved, then the gradients that the second half reads.
  struct SlotPool {
    int64_t bytes = 0;  // of a slot
    int64_t slots = 0;
    // How much the first `count` of `pools` take.
    static int64_t BytesOf(const std::vector<SlotPool>& pools, size_t count) {
      int64_t sum = 0;
      for (size_t p = 0; p < count; ++p) sum += pools[p].bytes * pools[p].slots;
      return sum;
    }
  };
  std::vector<SlotPool> pools;  // as Analysis::slots; one behind the other
  std::vector<SlotPool> held;   // as Analysis::held; behind those
  // As Analysis::stored; of the host.
  std::vector<SlotPool> stored;
  int64_t boundaries = 0;
  // What is saved by a visit whose backward follows at once: the loss, and
  // blocks under recompute (with their output, which nobody reads; of a first
  // half the output alone).
  int64_t scratch_slot = 0;
  int64_t workspace = 0;  // without scratch_slot
  int64_t copies = 0;
  int64_t staging = 0;        // where in `copies` a probe's kReduce is staged
  int64_t probe_staging = 0;  // and its kProbe
  int64_t sums = 0;           // doubles that the norm exchanges
  bool positions = false;     // of tokens, among the records
  int64_t records = 0;        // bytes
  std::vector<SlotPool> fetched;  // by class of copies (ProgramShape)
  int64_t host_scratch = 0;       // of the host, for its updates

  // Where a pool begins; of all of them, how much they take.
  int64_t SlotOffset(size_t pool) const {
    return SlotPool::BytesOf(pools, pool);
  }
  int64_t HeldOffset(size_t pool) const {
    return SlotOffset(pools.size()) + SlotPool::BytesOf(held, pool);
  }
  int64_t slot_bytes() const { return HeldOffset(held.size()); }
  int64_t StoredOffset(size_t slot_class) const {
    return SlotPool::BytesOf(stored, slot_class);
  }
  int64_t stored_bytes() const { return StoredOffset(stored.size()); }
  int64_t FetchedOffset(size_t copy_class) const {
    return SlotPool::BytesOf(fetched, copy_class);
  }
  int64_t fetched_bytes() const { return FetchedOffset(fetched.size()); }
};

// The planes that a store has of a set, in the order in which a copy has them.
std::vector<Plane> PlanesOf(const ParamStore& store, PlaneSet set);

// By layer, for ProgramShape::slot_class: the prologue, blocks that save as
// much as each other, those that `recompute` names (by layer; empty: none)
// apart, in the order of the first of each, the epilogue.
std::vector<int32_t> SlotClasses(const std::vector<LayerPlan>& layers,
                                 const std::vector<bool>& recompute = {});

// For passes that run in turn over the same memory: room for the layers of
// their stage. Slots of a class are as large as its layers' largest.
StepMemory SizeStep(const ParamStore& store,
                    const std::vector<LayerPlan>& layers,
                    const BatchShape& batch, const Passes& passes);

// Where in `copies` a visit with kApart keeps its gradients: by the slabs of
// its layer, -1 of a slab that no other block uses.
struct ApartPlaces {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;  // in all
};
ApartPlaces PlaceApart(const ParamStore& store, const ProgramShape& shape,
                       int32_t layer);

// A slab of a program, as the store counts those that are here.
inline int SlabHere(const ParamStore& store, int32_t slab) {
  return store.SlabOf(store.layout().LocalSlabOf(slab, store.rank()));
}

// How many ranks have a slab, and reduce its gradient.
inline int GroupSize(const ParamStore& store, int slab) {
  return static_cast<int>(store.local(slab).group->size());
}

// Of the store's device and what is planned for it.
MemoryAccount AccountOf(const ParamStore& store, const StepMemory& memory);

}  // namespace delink
