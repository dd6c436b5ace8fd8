// Weights of a store that are at home on the host, for passes forward over it:
// each layer's come to copies on the device before its turn, and while it is at
// work those of the next ones, as far as copies are free. Which come when and
// go when is what a run's evaluation does (offload/plan/residency.h), in copies
// of the same classes (layout_shape.h), but no more than this rank has slabs of
// one.
//
// Where all is at home on the device this takes nothing and does nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/param_store.h"
#include "framework/step/instruction.h"
#include "framework/tensor/buffer.h"

namespace delink {

class StreamedWeights {
 public:
  // Takes the memory of all copies from the device, as "fetched planes". The
  // store outlives it; meanwhile there is no other of the same store, and
  // nobody writes its weights. ResourceExhausted: the device has too little.
  static absl::StatusOr<std::unique_ptr<StreamedWeights>> Create(
      ParamStore& store);
  // How much that is, of a store of any device.
  static int64_t BytesOf(const ParamStore& store);
  // All work given to `compute` is done; the store's weights are at home again.
  ~StreamedWeights();

  // What `compute` is given from here on, until the next call, finds the
  // weights of the layer at `place` (Layout::visited) on the device. The layers
  // of this rank have their turns in order, again and again; one may be left
  // out, or have several calls in a turn.
  void Bring(size_t place, Stream& compute);

 private:
  struct Copy {
    char* memory = nullptr;
    int32_t slab = -1;            // of the program: whose weights come or are
    std::unique_ptr<Event> came;  // they are there
    std::unique_ptr<Event> left;  // of the compute stream, behind its last use
  };
  explicit StreamedWeights(ParamStore& store);

  absl::Status Allocate();
  // The next kFetch of the program that was not begun, if there is a copy.
  bool Fetch();
  void Arrive(int32_t slab, Stream& compute);
  void Leave(int32_t slab, Stream& compute);
  void Redirect(int32_t slab, void* copy);
  size_t After(size_t at) const {
    return (at + 1) % program_.instructions.size();
  }

  ParamStore& store_;
  std::unique_ptr<Stream> in_;
  Program program_;     // kFetch, kForward, kLoss and kRelease of one pass
  size_t fetches_ = 0;  // of the program
  Buffer memory_;
  std::vector<Copy> copies_;
  std::vector<std::deque<Copy*>> free_;  // by class
  std::deque<Copy*> begun_;  // whose kFetch comes next, in the program's order
  std::vector<Copy*> now_;   // by slab of the program; null: at home
  size_t at_ = 0;            // the instruction behind the last turn's visit
  size_t ahead_ = 0;         // behind the last kFetch that was begun
  int64_t place_ = -1;       // whose turn it is
};

}  // namespace delink
