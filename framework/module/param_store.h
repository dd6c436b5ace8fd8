// ParamStore: owns the slabs and their planes, and binds parameters to them
// when a layer is visited.
//
// A slab's planes are its weights, its gradient and the optimizer's state. Each
// is one device buffer, whole or this rank's shard, as the placement table
// says. Twelve layers that share are twelve module objects and one slab: only
// the store's maps know.
//
// In bf16 layers read rounded weights, and Options::master says where the
// parameters themselves are:
//   kFp32   in a plane of their own, kMaster; a weight is that rounded to the
//           nearest, ties to even, whoever writes it
//   kSplit  in the weight and the 16 bits of plane kLow, an exact f32
//           (framework/tensor/master.h); ties are rounded away from zero
//   kNone   the weights are all there is
// Gradients are f32, or with Options::bf16_gradients bf16 (whoever adds to one
// does so in f32 and rounds once), and state is what the optimizer's StateSpecs
// say. In f32 and f64 everything has that type, and the weights are the
// parameters.
//
// Thread-safety: planes of different slabs may be used by different threads;
// Bind belongs to the thread that runs the layers.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/module/placement.h"
#include "framework/module/sequential.h"
#include "framework/module/slab.h"
#include "framework/module/state_layout.h"
#include "framework/module/state_spec.h"
#include "framework/tensor/buffer.h"
#include "framework/tensor/master.h"

namespace delink {

enum class Plane : uint8_t {
  kWeight,
  kGradient,
  kMaster,
  kLow,
  // The optimizer's states, in the order of their specs.
  kState0,
  kState1,
  kState2,
  kState3
};
inline constexpr int kPlanes = 8;
inline constexpr int kMaxStates = 4;
constexpr Plane StatePlane(int state) {
  return static_cast<Plane>(static_cast<int>(Plane::kState0) + state);
}
constexpr bool IsState(Plane plane) { return plane >= Plane::kState0; }

class ParamStore {
 public:
  struct Options {
    DType dtype = DType::kF32;  // of weights and activations
    int rank = 0;               // in the data-parallel group
    int ranks = 1;
    // Planes to allocate: none but weights for evaluation.
    bool gradients = true;
    std::vector<StateSpec> states = TwoMoments();
    WholeTensors whole_tensors = WholeTensors::kNone;
    MasterForm master = MasterForm::kWhole;  // of bf16 weights
    bool bf16_gradients = false;             // of bf16 weights
  };
  // A parameter's values of one state, as this rank has them.
  struct StatePlace {
    StateFormat format;
    Range held;               // of the parameter's values
    void* values = nullptr;   // device address of the first held one
    float* scales = nullptr;  // kBlock8: of the block that holds it
  };

  // Every plane is zero after Create. The registry, its parameters and the
  // device must outlive the store.
  static absl::StatusOr<std::unique_ptr<ParamStore>> Create(
      Device& device, const ParamRegistry& registry, int blocks,
      const SharingMap& sharing, int zero, const Options& options);

  // Initialises all parameters as declared, each element a function of (seed,
  // logical name, index), the same in f32 and bf16.
  void InitWeights(uint64_t seed);

  // Replaces elements [element, element + count) of a slab's parameters, whose
  // weights must be held, by `values`: host memory, f64 where the weights are,
  // else f32. The master gets what this rank holds of it; weights are rounded.
  void SetParameters(Stream& stream, int slab, int64_t element, int64_t count,
                     const void* values);
  // The same elements, which must be held where the parameters are, to the
  // host.
  void ReadParameters(Stream& stream, int slab, int64_t element, int64_t count,
                      void* values) const;

  // Values of a parameter's state, which must be held, to host memory and from
  // there, in the type of dtype(kState0). Written ranges of 8-bit values begin
  // and end where blocks do (ForEachStatePiece), or where the held ones do.
  // What has been read and is written again is the same to the bit.
  void ReadState(Stream& stream, int slab, int state, size_t param, Range range,
                 void* values) const;
  void WriteState(Stream& stream, int slab, int state, size_t param,
                  Range range, const void* values);

  const std::vector<Slab>& slabs() const { return slabs_; }
  const Slab& slab(int i) const { return At(slabs_, i); }
  const SharingMap& sharing() const { return sharing_; }
  const PlacementTable& placement() const { return placement_; }
  const Options& options() const { return options_; }
  const ParamRegistry& registry() const { return *registry_; }
  Device& device() const { return *device_; }
  int blocks() const { return blocks_; }
  int layers() const { return static_cast<int>(bindings_.size()); }
  // Slabs that a visit of `layer` uses, ascending.
  const std::vector<int>& slabs_of_layer(int layer) const {
    return At(slabs_of_layer_, layer);
  }
  std::vector<LogicalTensor> logical_tensors() const {
    return LogicalTensors(*registry_, blocks_, sharing_, slabs_);
  }

  // Whether the plane was allocated.
  bool has(Plane plane) const;
  DType dtype(Plane plane) const;
  // The plane that has the parameters themselves, or, where the master is
  // split, the upper half of them.
  Plane master() const {
    return has(Plane::kMaster) ? Plane::kMaster : Plane::kWeight;
  }
  // The elements of the slab that this rank's plane holds.
  Range held(int slab, Plane plane) const;
  // The elements of the slab that a rank owns: counts in the norm, updates,
  // saves. Every element has exactly one owner.
  Range owned(int slab) const { return OwnedBy(slab, options_.rank); }
  Range OwnedBy(int slab, int rank) const;
  // Device address of element `element` (counted from the slab's start), which
  // must be held. Whole planes have room for ShardElements * ranks elements. Of
  // a state: of an elementwise value; neighbours of the same format are
  // neighbours there, but for the scales.
  void* at(int slab, Plane plane, int64_t element) const;

  const std::vector<StateSpec>& states() const { return options_.states; }
  StatePlace state(int slab, int state, size_t param) const;
  Shape state_shape(int slab, int state, size_t param) const;
  // Of what a rank owns of the slab.
  Range StateOwnedBy(int slab, int state, size_t param, int rank) const;

  // Points the parameters of `layer` at their weights and, with `written`
  // given, at their gradients; (*written)[i] says whether the gradient of
  // slabs_of_layer(layer)[i] already holds contributions of this step. With
  // `gradients` given, slab i's gradient goes to that address (of the plane's
  // size, in the slab's order) instead of its plane, where it is not null.
  void Bind(int layer, const std::vector<bool>* written,
            const std::vector<void*>* gradients = nullptr);
  // After a backward of the layer bound last: zeroes the gradients in its slabs
  // that nobody has written in this step, those of parameters that only other
  // layers use included.
  void FinishGradients(int layer, Stream& stream);

  // Updates the optimizer has made to each slab (bias correction); saved.
  std::vector<int64_t>& updates() { return updates_; }
  const std::vector<int64_t>& updates() const { return updates_; }

  // Bytes that a plane of a slab, or the planes of a kind, take on this rank.
  int64_t bytes(int slab, Plane plane) const;
  int64_t bytes(Plane plane) const;
  // Of the optimizer's state, with the master.
  int64_t state_bytes() const;
  // Elements of all slabs without padding, and the same counted once for each
  // layer that uses them.
  int64_t unique_parameters() const;
  int64_t virtual_parameters() const;

 private:
  struct Binding {
    Param* param;
    Shape shape;
    int slab;
    int index;  // of slab in slabs_of_layer
    int64_t offset;
  };
  // A parameter in a slab of a layer that only other layers use.
  struct Stranger {
    int slab;
    int index;  // of slab in slabs_of_layer
    int64_t offset;
    int64_t elements;
  };

  ParamStore() = default;
  void BuildBindings();
  void FindStrangers();
  const ParamDecl& DeclOf(int slab, size_t param) const;
  std::vector<bool> WholeSlabs() const;
  void LayOutStates();
  const StateLayout& LayoutOf(int slab, Plane plane) const {
    const auto state =
        static_cast<int>(plane) - static_cast<int>(StatePlane(0));
    return At(At(state_layouts_, state), slab);
  }
  bool Wanted(Plane plane) const;
  int64_t WantedBytes() const;
  std::string NameOf(Plane plane) const;
  absl::Status AllocatePlanes();
  int64_t PlaneElements(int slab, Plane plane) const;

  Device* device_ = nullptr;
  const ParamRegistry* registry_ = nullptr;
  Options options_;
  int blocks_ = 0;
  SharingMap sharing_;
  PlacementTable placement_;
  std::vector<Slab> slabs_;
  std::vector<std::vector<Binding>> bindings_;    // by layer
  std::vector<std::vector<Stranger>> strangers_;  // by layer
  // Of the strangers of the layer bound last, those not written in this step.
  std::vector<Tensor> strange_gradients_;
  std::vector<std::vector<int>> slabs_of_layer_;         // by layer
  std::vector<std::vector<StateLayout>> state_layouts_;  // by state, slab
  std::vector<std::vector<Buffer>> planes_;              // by plane, slab
  std::vector<int64_t> updates_;                         // by slab
};

}  // namespace delink
