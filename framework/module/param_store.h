// ParamStore: the planes of the slabs that one rank has under a layout, and
// their values.
//
// A slab's planes are its weights, its gradient and the optimizer's state. Each
// is one buffer, whole or this rank's shard, as the placement table says. The
// layout decides which rank has what (layout.h); layers see the planes through
// a Binder (binder.h). Slab i is the i-th local slab of the layout that this
// rank has.
//
// In bf16, layers read rounded weights, and Options::master says where the
// exact parameters are:
//   kWhole  in their own plane, kMaster; a weight is the master rounded to the
//           nearest, ties to even
//   kSplit  in the weight and the 16 bits of plane kLow, together an exact f32
//           (framework/tensor/master.h); ties are rounded away from zero
//   kNone   there is no master: the weights are the parameters
// Gradients are f32, or bf16 with Options::bf16_gradients: an addition to one
// is in f32 and rounds once. The optimizer's StateSpecs say how state is
// stored. In f32 and f64 everything has that type, and the weights are the
// parameters; so it is for exact slabs (ParamSpec::exact) in bf16, which are
// f32.
//
// Thread-safety: planes of different slabs may be used by different threads.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/device/host_arena.h"
#include "framework/module/layout.h"
#include "framework/module/plane.h"
#include "framework/module/state_codec.h"
#include "framework/module/state_layout.h"
#include "framework/module/state_spec.h"
#include "framework/tensor/buffer.h"
#include "framework/tensor/master.h"

namespace delink {

class ParamStore {
 public:
  struct Options {
    DType dtype = DType::kF32;  // of activations and weights that are not exact
    // Planes to allocate; evaluation needs only weights.
    bool gradients = true;
    std::vector<StateSpec> states = TwoMoments();
    MasterForm master = MasterForm::kWhole;  // of bf16 weights
    bool bf16_gradients = false;             // of bf16 weights
  };
  // A parameter's values of one state, as this rank has them.
  struct StatePlace {
    StateFormat format;
    StateCodec codec;
    Range held;               // of the parameter's values
    void* values = nullptr;   // device address of the first held one
    float* scales = nullptr;  // kBlock8: of the block that holds it
  };

  // The store of `rank` under `layout`, which many stores may share. Every
  // plane is zero after Create. The layout's registry, its parameters and the
  // device must outlive the store.
  static absl::StatusOr<std::unique_ptr<ParamStore>> Create(
      Device& device, std::shared_ptr<const Layout> layout, int rank,
      const Options& options);
  // The same with a layout that no other store has.
  static absl::StatusOr<std::unique_ptr<ParamStore>> Create(
      Device& device, Layout layout, int rank, const Options& options);

  // Initialises all parameters as declared. Each element is a function of
  // (seed, logical name, index), the same in f32 and bf16.
  void InitWeights(uint64_t seed);
  // Initialises one tensor by `init`.
  void InitTensor(uint64_t seed, const LogicalTensor& tensor, const Init& init);

  const Layout& layout() const { return *layout_; }
  const std::shared_ptr<const Layout>& shared_layout() const { return layout_; }
  int rank() const { return rank_; }
  int ranks() const { return layout_->ranks(); }
  const ParamRegistry& registry() const { return layout_->registry(); }
  const SharingMap& sharing() const { return layout_->sharing(); }
  int blocks() const { return layout_->blocks(); }
  const std::vector<int>& visited() const { return layout_->visited(); }
  const Options& options() const { return options_; }
  Device& device() const { return *device_; }

  const std::vector<Slab>& slabs() const { return slabs_; }
  const Slab& slab(int i) const { return At(slabs_, i); }
  const LocalSlab& local(int slab) const {
    return At(layout_->local_slabs(), IndexOf(slab));
  }
  const PlacementRow& placement(int slab) const {
    return At(layout_->placement().rows, IndexOf(slab));
  }
  // The slab's index in Layout::local_slabs, and the slab with such an index,
  // which this rank must have.
  int IndexOf(int slab) const { return At(indices_, slab); }
  int SlabOf(int local) const;
  // The slabs here that have a part of a logical one, ascending.
  std::vector<int> LocalSlabsOf(int logical) const;
  // Slabs that a visit of `layer` uses, ascending; none if it is not visited.
  const std::vector<int>& slabs_of_layer(int layer) const {
    return At(slabs_of_layer_, layer);
  }

  // Whether a parameter is exact where others are rounded.
  bool IsExact(const LogicalTensor& tensor) const {
    return options_.dtype == DType::kBF16 && layout_->SpecOf(tensor).exact;
  }
  // Whether slabs have the plane: the same on all ranks. Those whose weights
  // are not rounded have neither kMaster nor kLow: no bytes of them.
  bool has(Plane plane) const;
  bool has(int slab, Plane plane) const;
  DType dtype(int slab, Plane plane) const {
    return TypeOf(plane, At(slabs_, slab).exact);
  }
  // The type of a plane of slabs, and parameters, that are exact or not.
  DType TypeOf(Plane plane, bool exact) const;
  // The plane that has the parameters themselves, or their upper half if the
  // master is split.
  Plane master(int slab) const {
    return has(slab, Plane::kMaster) ? Plane::kMaster : Plane::kWeight;
  }
  // The elements of the slab that this rank's plane holds.
  Range held(int slab, Plane plane) const;
  // The elements of the slab that a rank owns. The owner counts them in the
  // norm, updates and saves them. Every element has exactly one owner.
  Range owned(int slab) const { return OwnedBy(slab, rank_); }
  Range OwnedBy(int slab, int rank) const {
    return layout_->OwnedBy(IndexOf(slab), rank);
  }
  // Address of element `element` (counted from the slab's start), which must be
  // held, or be in the copy to which the plane is redirected. It is a device
  // address; if the plane is host-resident and not redirected, a host address
  // that the device can access, slowly. Whole planes have room for
  // ShardElements(n) * n elements, n ranks of a group. In a state plane the
  // state must be elementwise; neighbours of the same format are neighbours
  // there, except the scales.
  void* at(int slab, Plane plane, int64_t element) const;

  const std::vector<StateSpec>& states() const { return options_.states; }
  StatePlace state(int slab, int state, size_t param) const;
  // The plane's memory in its tier, bytes(slab, plane).
  void* home(int slab, Plane plane) const {
    return At(At(planes_, plane), slab).home;
  }
  // Where the plane is now: at home(), or in a copy.
  void* now(int slab, Plane plane) const {
    return At(At(planes_, plane), slab).now;
  }
  // From now on the plane is in a copy at `copy`, of its size; null: it is at
  // home() again. Nobody else may use the plane meanwhile.
  void Redirect(int slab, Plane plane, void* copy);
  // The same with a copy of the whole plane, of whole_bytes(slab, plane).
  void RedirectWhole(int slab, Plane plane, void* copy);
  // The memory of the host-resident planes, each by its name; null if there are
  // none, or nothing is allocated.
  const HostArena* host() const { return host_.get(); }

  // Updates that the optimizer has made to each slab, for bias correction;
  // saved in checkpoints.
  std::vector<int64_t>& updates() { return updates_; }
  const std::vector<int64_t>& updates() const { return updates_; }

  // Bytes that a plane of a slab, or the planes of a kind in a tier, take on
  // this rank.
  int64_t bytes(int slab, Plane plane) const;
  // Of weights or a gradient, if it were not sharded.
  int64_t whole_bytes(int slab, Plane plane) const;
  int64_t bytes(Plane plane, Tier tier = Tier::kDevice) const;
  // Bytes of the optimizer's state and the master.
  int64_t state_bytes(Tier tier = Tier::kDevice) const;
  // Elements of all logical slabs without padding: each once, or once for each
  // visited layer that uses it.
  int64_t unique_parameters() const;
  int64_t virtual_parameters() const;
  // Of the virtual parameters those that work on a token (ParamSpec::used).
  int64_t active_parameters() const;

 private:
  ParamStore(Device& device, std::shared_ptr<const Layout> layout, int rank,
             const Options& options);
  void LayOutStates();
  const StateLayout& LayoutOf(int slab, Plane plane) const {
    const auto state =
        static_cast<int>(plane) - static_cast<int>(StatePlane(0));
    return At(At(state_layouts_, state), slab);
  }
  int64_t WantedBytes() const;
  int64_t HostBytes() const;
  std::string NameOf(Plane plane) const;
  absl::Status AllocatePlanes();
  int64_t PlaneElements(int slab, Plane plane) const;

  Device* device_ = nullptr;
  std::shared_ptr<const Layout> layout_;
  int rank_ = 0;
  Options options_;
  std::vector<int> indices_;  // by slab
  std::vector<Slab> slabs_;
  std::vector<std::vector<int>> slabs_of_layer_;         // by layer
  std::vector<std::vector<StateLayout>> state_layouts_;  // by state, slab
  struct PlaneMemory {
    Buffer buffer;  // if device-resident
    void* home = nullptr;
    void* now = nullptr;  // where it is
    bool whole = false;   // a whole copy is there
  };
  std::vector<std::vector<PlaneMemory>> planes_;  // by plane, slab
  std::unique_ptr<HostArena> host_;  // of host-resident planes, if any
  std::vector<int64_t> updates_;     // by slab
};

}  // namespace delink
