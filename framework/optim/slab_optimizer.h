// What the executor asks of an optimizer: sums for the global norm, the norm
// itself, and the update of one slab. Everything a step decides (learning rate,
// clip factor, whether to skip) is in device memory, so that the host never
// waits inside a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/autograd/visit_group.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "framework/optim/arguments.h"

namespace delink {

// What an update exchanges with the ranks of its tensor axis.
struct UpdateExchange {
  enum class Kind : uint8_t { kAllGather, kSum };
  Kind kind = Kind::kSum;
  int64_t count = 0;  // as VisitGroup's
  DType dtype = DType::kF32;
  friend bool operator==(const UpdateExchange&,
                         const UpdateExchange&) = default;
};

class SlabOptimizer {
 public:
  virtual ~SlabOptimizer() = default;
  // What it needs in the store.
  virtual std::vector<StateSpec> states() const = 0;
  virtual WholeTensors whole_tensors() const { return WholeTensors::kNone; }
  // Updates the part of the slab whose state this rank holds. Leaves all as it
  // is when control->skip is set. `update` counts the slab's updates from 1.
  virtual void Update(Stream& stream, ParamStore& store, int slab,
                      const UpdateControl* control, int64_t update) = 0;

  // What Update exchanges for Layout::local_slabs[slab] on `rank`, in order;
  // `type` is that of exact state. The same on all ranks of a tensor axis,
  // whose counterparts of the slab are updated together; nothing where none of
  // them holds its state.
  virtual std::vector<UpdateExchange> Exchanges(const Layout& layout, int rank,
                                                int slab, DType type) const {
    static_cast<void>(layout);
    static_cast<void>(rank);
    static_cast<void>(slab);
    static_cast<void>(type);
    return {};
  }
  // The ranks of the tensor axis, in its order, for the updates from here on;
  // null where this rank is alone.
  void set_tensor_group(VisitGroup* group) { tensor_group_ = group; }

  // Device memory that an update of any slab needs for itself.
  virtual int64_t ScratchBytes(const ParamStore& store) const {
    static_cast<void>(store);
    return 0;
  }
  // That memory, for the updates from here on; nobody else uses it meanwhile.
  void set_scratch(void* scratch) { scratch_ = static_cast<char*>(scratch); }

 protected:
  char* scratch() const { return scratch_; }
  VisitGroup& tensor_group() const {
    DELINK_CHECK(tensor_group_ != nullptr)
        << "an update of a part of a matrix, without the others' parts";
    return *tensor_group_;
  }

 private:
  char* scratch_ = nullptr;
  VisitGroup* tensor_group_ = nullptr;
};

// sums[i] = sum of squares of block i of the slab's gradient, or of another of
// its planes (bf16 weights with what a split master has beside them), in
// double, for the blocks in `owned`, which must be held; the others' are set to
// zero. `sums` (device memory) has slab.blocks() elements. `owned` begins on a
// block and ends on one or at the slab's end. The bits depend on the block
// alone: not on the range, the number of threads or the machine's vector width.
// Exchanging all ranks' sums by addition is therefore exact (every other
// summand is zero).
void SumSquares(Stream& stream, const ParamStore& store, int slab, Range owned,
                double* sums, Plane plane = Plane::kGradient);

// From n block sums of all ranks and slabs, followed by the sum of the losses
// and the number of counted targets, to norm, clip_factor, loss_sum, tokens and
// skip. All device memory. The sums are taken in order; clip_factor is
// min(1, clip / (norm + 1e-6)) / tokens, as torch's clip_grad_norm_. skip is
// set where the loss or the norm is not finite, the norm is above skip_above,
// or nothing was counted.
void FinishNorm(Stream& stream, Device& device, const double* sums, int64_t n,
                UpdateControl* control);

// Writes what travels behind the block sums: *loss_sum, *tokens and `votes`, as
// doubles. All device memory.
void WriteTail(Stream& stream, Device& device, const double* loss_sum,
               const int64_t* tokens, double votes, double* tail);

// For a diagnosis: the first logical slab with a cell whose sum is not finite,
// or -1. `sums` are those of all cells (layout.h), on the host.
int FirstNonFiniteSlab(const Layout& layout, std::span<const double> sums);

}  // namespace delink
