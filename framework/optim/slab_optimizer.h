// The executor's interface to an optimizer: sums for the global norm, the norm
// itself, and the update of one slab. Everything that a step decides (learning
// rate, clip factor, whether to skip) is in device memory, so that the host
// never waits inside a step.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "framework/autograd/visit_group.h"
#include "framework/base/rng.h"
#include "framework/device/backend.h"
#include "framework/module/param_store.h"
#include "framework/optim/arguments.h"
#include "framework/optim/param_rules.h"

namespace delink {

// One exchange of an update with the ranks of its tensor axis.
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
  explicit SlabOptimizer(ParamRules rules = ParamRules({}))
      : rules_(std::move(rules)) {}
  virtual ~SlabOptimizer() = default;
  // The state that it needs in the store.
  virtual std::vector<StateSpec> states() const = 0;
  virtual WholeTensors whole_tensors() const { return WholeTensors::kNone; }
  // Updates the part of the slab whose state this rank holds. Changes nothing
  // if control->skip is set. `update` counts the slab's updates from 1.
  virtual void Update(Stream& stream, ParamStore& store, int slab,
                      const UpdateControl* control, int64_t update) = 0;

  // The exchanges of Update for Layout::local_slabs[slab] on `rank`, in order;
  // `type` is that of exact state. They are the same on all ranks of a tensor
  // axis, which update their pieces of the slab together; none if no rank of
  // the axis holds its state.
  virtual std::vector<UpdateExchange> Exchanges(const Layout& layout, int rank,
                                                int slab, DType type) const {
    static_cast<void>(layout);
    static_cast<void>(rank);
    static_cast<void>(slab);
    static_cast<void>(type);
    return {};
  }
  // Sets the ranks of the tensor axis, in its order, for later updates; null if
  // this rank is alone.
  void set_tensor_group(VisitGroup* group) { tensor_group_ = group; }

  // Bytes of scratch memory on the device that an update of any slab needs.
  virtual int64_t ScratchBytes(const ParamStore& store) const {
    static_cast<void>(store);
    return 0;
  }
  // Sets that memory for later updates; nobody else may use it meanwhile.
  void set_scratch(void* scratch) { scratch_ = static_cast<char*>(scratch); }
  // Sets the hyper-parameters of later updates.
  void set_rules(ParamRules rules) { rules_ = std::move(rules); }
  // The seed of stochastic rounding.
  void set_seed(uint64_t seed) {
    rounding_ = Fold(KeyFromSeed(seed), "rounding");
  }

 protected:
  const ParamRules& rules() const { return rules_; }
  RngKey rounding() const { return rounding_; }
  char* scratch() const { return scratch_; }
  VisitGroup& tensor_group() const {
    DELINK_CHECK(tensor_group_ != nullptr)
        << "an update of a part of a matrix, without the others' parts";
    return *tensor_group_;
  }

 private:
  ParamRules rules_;
  char* scratch_ = nullptr;
  RngKey rounding_ = Fold(KeyFromSeed(1), "rounding");
  VisitGroup* tensor_group_ = nullptr;
};

// sums[i] = sum of squares of block i of the slab's gradient, or of another of
// its planes (bf16 weights together with the low bits of a split master), in
// double, for the blocks in `owned`, which must be held; other sums are set to
// zero. `sums` (device memory) has slab.blocks() elements. `owned` begins on a
// block and ends on one or at the slab's end. The bits depend on the block
// alone, not on the range, the number of threads or the machine's vector width.
// Adding the sums of all ranks is therefore exact: every other summand is zero.
void SumSquares(Stream& stream, const ParamStore& store, int slab, Range owned,
                double* sums, Plane plane = Plane::kGradient);

// Computes norm, clip_factor, loss_sum, tokens, lost and skip. `sums` has n
// block sums of all ranks and slabs, then what WriteTail writes, of all ranks.
// All device memory. The sums are added in order; clip_factor
// is min(1, clip / (norm + 1e-6)) / tokens, as in torch's clip_grad_norm_. skip
// is set if the loss or the norm is not finite, the norm is above skip_above,
// no target was counted, or something is lost.
void FinishNorm(Stream& stream, Device& device, const double* sums, int64_t n,
                UpdateControl* control);

// Writes the four doubles that follow the block sums when ranks exchange them:
// *loss_sum, *tokens, *lost and `votes`. All device memory.
void WriteTail(Stream& stream, Device& device, const SumsTailArgs& args);

// For error messages: the first logical slab with a cell whose sum is not
// finite, or -1. `sums` are those of all cells (layout.h), on the host.
int FirstNonFiniteSlab(const Layout& layout, std::span<const double> sums);

}  // namespace delink
