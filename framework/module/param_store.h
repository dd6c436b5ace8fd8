// ParamStore: owns the slabs and their planes, and binds parameters to them
// when a layer is visited.
//
// A slab's planes are its weights, its gradient and the optimizer's state. Each
// is one device buffer, whole or this rank's shard, as the placement table
// says. Twelve layers that share are twelve module objects and one slab: only
// the store's maps know.
//
// In bf16 the weights, which layers read, are a copy: a store that trains has
// the parameters in f32 in a plane of their own, the master, and a weight is
// the master rounded to the nearest, ties to even, whoever writes it. Gradients
// and state are f32. In f32 and f64 everything has that type, and the weights
// are the parameters.
//
// Thread-safety: planes of different slabs may be used by different threads;
// Bind belongs to the thread that runs the layers.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/placement.h"
#include "framework/module/sequential.h"
#include "framework/module/slab.h"
#include "framework/tensor/buffer.h"

namespace delink {

enum class Plane : uint8_t { kWeight, kGradient, kState0, kState1, kMaster };
inline constexpr int kPlanes = 5;

class ParamStore {
 public:
  struct Options {
    DType dtype = DType::kF32;  // of weights and activations
    int rank = 0;               // in the data-parallel group
    int ranks = 1;
    // Planes to allocate: none but weights for evaluation; 2 states for AdamW,
    // and with any a master in bf16.
    bool gradients = true;
    int states = 2;
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

  const std::vector<Slab>& slabs() const { return slabs_; }
  const SharingMap& sharing() const { return sharing_; }
  const PlacementTable& placement() const { return placement_; }
  const Options& options() const { return options_; }
  const ParamRegistry& registry() const { return *registry_; }
  Device& device() const { return *device_; }
  int blocks() const { return blocks_; }
  int layers() const { return static_cast<int>(bindings_.size()); }
  // Slabs that a visit of `layer` uses, ascending.
  const std::vector<int>& slabs_of_layer(int layer) const {
    return slabs_of_layer_[static_cast<size_t>(layer)];
  }
  std::vector<LogicalTensor> logical_tensors() const {
    return LogicalTensors(*registry_, blocks_, sharing_, slabs_);
  }

  // Whether the plane was allocated.
  bool has(Plane plane) const;
  DType dtype(Plane plane) const;
  // The plane that has the parameters themselves: what is updated and saved.
  Plane master() const {
    return has(Plane::kMaster) ? Plane::kMaster : Plane::kWeight;
  }
  // The elements of the slab that this rank's plane holds.
  Range held(int slab, Plane plane) const;
  // The elements of the slab that this rank owns.
  Range owned(int slab) const {
    return ShardRange(slabs_[static_cast<size_t>(slab)], options_.rank,
                      options_.ranks);
  }
  // Device address of element `element` (counted from the slab's start), which
  // must be held. Whole planes have room for ShardElements * ranks elements.
  void* at(int slab, Plane plane, int64_t element) const;

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

  // Bytes that the planes of a kind take on this rank.
  int64_t bytes(Plane plane) const;
  // Of the optimizer's state, with the master.
  int64_t state_bytes() const {
    return bytes(Plane::kState0) + bytes(Plane::kState1) +
           bytes(Plane::kMaster);
  }
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
  bool Wanted(Plane plane) const;
  int64_t WantedBytes() const;
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
  std::vector<std::vector<int>> slabs_of_layer_;  // by layer
  std::vector<std::vector<Buffer>> planes_;       // by plane, slab
  std::vector<int64_t> updates_;                  // by slab
};

}  // namespace delink
