// Prefetches the host-resident and the sharded weights of a store for forward
// passes. Each layer's weights are copied to the device, or gathered there,
// before its turn. While it computes, the next layers' weights are prefetched,
// as far as copies are free. Prefetches and evictions are those of a run's
// evaluation (offload/plan/residency.h), with copies of the same classes
// (layout_shape.h), but of each class at most as many as this rank has slabs.
//
// If all weights are whole and device-resident, it allocates nothing and does
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/param_store.h"
#include "framework/step/groups/gather_lane.h"
#include "framework/step/program/instruction.h"
#include "framework/tensor/buffer.h"

namespace delink {

class StreamedWeights {
 public:
  // Allocates all copies on the device, as "fetched planes". The store, and
  // `gathers` of its sharded weights, outlive it. A store has at most one at a
  // time, and its weights must not be written meanwhile. ResourceExhausted: the
  // device has too little memory.
  static absl::StatusOr<std::unique_ptr<StreamedWeights>> Create(
      ParamStore& store, GatherLane* gathers = nullptr);
  // The bytes of these copies, for a store on any device.
  static int64_t BytesOf(const ParamStore& store);
  // All work given to `compute` must be done. Binds the store's weights to
  // their homes again. Waits for gathers that were begun.
  ~StreamedWeights();

  // Work given to `compute` from here until the next call finds the weights of
  // the layer at `place` (Layout::visited) on the device. The layers of this
  // rank take turns in order, repeatedly. A layer may be skipped, or have
  // several calls in its turn. Ranks that gather weights together skip the same
  // layers, and destroy this after the same turn. An error of a gather is in
  // the lane's status.
  void Bring(size_t place, Stream& compute);

 private:
  struct Copy {
    char* memory = nullptr;
    int32_t slab = -1;            // of the program: whose weights it holds
    int64_t gather = 0;           // its number in the lane; 0: none
    std::unique_ptr<Event> came;  // the copy is complete
    std::unique_ptr<Event> left;  // on the compute stream, after its last use
  };
  StreamedWeights(ParamStore& store, GatherLane* gathers);

  absl::Status Allocate();
  // Begins the next kFetch of the program, if a copy is free.
  bool Fetch();
  void Fill(Copy& copy);
  void Arrive(int32_t slab, Stream& compute);
  void Leave(int32_t slab, Stream& compute);
  void Redirect(int32_t slab, void* copy);
  size_t After(size_t at) const {
    return (at + 1) % program_.instructions.size();
  }

  ParamStore& store_;
  GatherLane* const gathers_;
  std::unique_ptr<Stream> in_;
  Program program_;     // kFetch, kForward, kLoss and kRelease of one pass
  size_t fetches_ = 0;  // of the program
  Buffer memory_;
  std::vector<Copy> copies_;
  std::vector<std::deque<Copy*>> free_;  // by class
  std::deque<Copy*> begun_;  // their kFetch has begun, in the program's order
  std::vector<Copy*> now_;   // by slab of the program; null: at home
  size_t at_ = 0;            // the instruction after the last turn's visit
  size_t ahead_ = 0;         // after the last kFetch that was begun
  int64_t place_ = -1;       // whose turn it is
};

}  // namespace delink
