// How much memory a stage takes, and where everything is in it. This account is
// printed before the first step; the executor then allocates exactly so much.
//
// Of host memory only MemoryAccount::host is counted. Not counted are memory
// pinned for exchanges of device memory (stream_communicator.h; for each stream
// as much as its largest exchange) and other memory of optimizer or loader.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/base/format_bytes.h"
#include "framework/module/param_store.h"
#include "framework/step/plan/measure.h"
#include "framework/step/program/pass.h"

namespace delink {

// Bytes on this rank's device, by kind (docs/architecture.md, "Memory"); `host`
// is host memory.
struct MemoryAccount {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t state = 0;       // of the optimizer, and the master under bf16
  int64_t slots = 0;       // boundaries of forward, what backward reads and
                           // what it holds between its halves
  int64_t boundaries = 0;  // gradients between layers
  int64_t workspace = 0;
  int64_t copies = 0;   // staging of reductions; gradients kept apart; whole
                        // gradients, if gradients are sharded
  int64_t fetched = 0;  // copies of host-resident planes, of sharded weights
  int64_t records = 0;
  int64_t overhead = 0;  // of the device itself (Device::overhead)
  int64_t host = 0;      // on the host: host-resident planes, stored slots and
                         // scratch memory of its updates

  // What the two stages of a switch hold at the same time.
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

// Doubles that the norm's exchange sends after the sums of squares: the loss,
// its number of tokens, the choices that are lost, the votes. The layers' sums
// follow.
inline constexpr int64_t kTailSums = 4;

// Sizes of everything the engine allocates.
struct StepMemory {
  BatchShape batch;
  int32_t micro_batches = 1;
  bool recompute = false;      // of some block
  int64_t boundary_bytes = 0;  // of a tensor between two layers
  // A slot has its input boundary (none for the prologue), then what is saved.
  // Held between the halves of a backward: what a repeated forward has saved,
  // then the gradients that the second half reads.
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
  // What visits save whose backward follows at once: the loss, and blocks under
  // recompute (with their output, which nobody reads; for a first half, only
  // the output).
  int64_t scratch_slot = 0;
  int64_t workspace = 0;  // without scratch_slot
  int64_t copies = 0;
  int64_t staging = 0;        // where in `copies` a probe's kReduce is staged
  int64_t probe_staging = 0;  // its kProbe
  int64_t first_whole = 0;    // and whole gradients
  std::vector<SlotPool> wholes;  // as Analysis::wholes
  int64_t sums = 0;              // doubles that the norm exchanges
  int64_t layer_sums = 0;        // of them, the last: of all layers (LayerPlan)
  // By place: where a layer's sums begin among those of all layers. By slab
  // with a bias (framework/optim/balance.h): the same of each of its layers.
  std::vector<int64_t> first_sums;
  std::map<int, std::vector<int64_t>> biases;
  bool positions = false;         // whether the records have tokens' positions
  int64_t records = 0;            // bytes
  std::vector<SlotPool> fetched;  // by class of copies (ProgramShape)
  int64_t host_scratch = 0;       // of the host, for its updates

  // Where a pool begins, and the bytes of all pools.
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
  int64_t WholeOffset(size_t whole_class) const {
    return first_whole + SlotPool::BytesOf(wholes, whole_class);
  }
  int64_t FetchedOffset(size_t copy_class) const {
    return SlotPool::BytesOf(fetched, copy_class);
  }
  int64_t fetched_bytes() const { return FetchedOffset(fetched.size()); }
};

// The store's planes of a set, in the order that they have in a copy.
std::vector<Plane> PlanesOf(const ParamStore& store, PlaneSet set);

// By layer, for ProgramShape::slot_class: the prologue, the classes of blocks
// in the order of their first, the epilogue. All blocks in `recompute` (by
// layer; empty: none) are one class; others share one if they save equally
// much.
std::vector<int32_t> SlotClasses(const std::vector<LayerPlan>& layers,
                                 const std::vector<bool>& recompute = {});

// Memory for the layers of one stage, whose passes use it in turn. The slots of
// a class are as large as its largest layer needs.
StepMemory SizeStep(const ParamStore& store,
                    const std::vector<LayerPlan>& layers,
                    const BatchShape& batch, const Passes& passes);

// Where in `copies` a visit with kApart keeps its gradients: by the slabs of
// its layer, -1 for a slab that no other block uses.
struct ApartPlaces {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;  // in all
};
ApartPlaces PlaceApart(const ParamStore& store, const ProgramShape& shape,
                       int32_t layer);

// The store's number for a program's slab, which must be on this rank.
inline int SlabHere(const ParamStore& store, int32_t slab) {
  return store.SlabOf(store.layout().LocalSlabOf(slab, store.rank()));
}

// How many ranks have a slab, and reduce its gradient.
inline int GroupSize(const ParamStore& store, int slab) {
  return static_cast<int>(store.local(slab).group->size());
}

// Whether its gradient is reduced over the ranks that have the weights
// together, then over those that have the same (LocalSlab::replicas).
bool InTwoSteps(const ParamStore& store, int slab);

// Bytes of a slab's gradient on one rank, if it were not sharded.
int64_t WholeGradientBytes(const ParamStore& store, int slab);

// The account of the store's planes and the memory that is planned.
MemoryAccount AccountOf(const ParamStore& store, const StepMemory& memory);

}  // namespace delink
