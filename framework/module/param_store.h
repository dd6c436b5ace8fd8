// ParamStore: the planes of the slabs that one rank has under a layout, and
// their values.
//
// A slab's planes are its weights, its gradient and the optimizer's state. Each
// is one device buffer, whole or this rank's shard, as the placement table
// says. Who has what the layout decides (layout.h); layers see the planes
// through a Binder (binder.h). Slabs are counted as this rank has them: the
// local ones of the layout, in its order.
//
// In bf16 layers read rounded weights, and Options::master says where the
// parameters themselves are:
//   kWhole  in a plane of their own, kMaster; a weight is that rounded to the
//           nearest, ties to even, whoever writes it
//   kSplit  in the weight and the 16 bits of plane kLow, an exact f32
//           (framework/tensor/master.h); ties are rounded away from zero
//   kNone   the weights are all there is
// Gradients are f32, or with Options::bf16_gradients bf16 (whoever adds to one
// does so in f32 and rounds once), and state is what the optimizer's StateSpecs
// say. In f32 and f64 everything has that type, and the weights are the
// parameters.
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
    DType dtype = DType::kF32;  // of weights and activations
    // Planes to allocate: none but weights for evaluation.
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

  // What `rank` has under `layout`. Every plane is zero after Create. The
  // layout's registry, its parameters and the device must outlive the store.
  static absl::StatusOr<std::unique_ptr<ParamStore>> Create(
      Device& device, Layout layout, int rank, const Options& options);

  // Initialises all parameters as declared, each element a function of (seed,
  // logical name, index), the same in f32 and bf16.
  void InitWeights(uint64_t seed);
  // The same of one tensor, by `init`.
  void InitTensor(uint64_t seed, const LogicalTensor& tensor, const Init& init);

  const Layout& layout() const { return layout_; }
  int rank() const { return rank_; }
  int ranks() const { return layout_.ranks(); }
  const ParamRegistry& registry() const { return layout_.registry(); }
  const SharingMap& sharing() const { return layout_.sharing(); }
  int blocks() const { return layout_.blocks(); }
  const std::vector<int>& visited() const { return layout_.visited(); }
  const Options& options() const { return options_; }
  Device& device() const { return *device_; }

  const std::vector<Slab>& slabs() const { return slabs_; }
  const Slab& slab(int i) const { return At(slabs_, i); }
  const LocalSlab& local(int slab) const {
    return At(layout_.local_slabs(), IndexOf(slab));
  }
  const PlacementRow& placement(int slab) const {
    return At(layout_.placement().rows, IndexOf(slab));
  }
  // The slab that has index `local` in Layout::local_slabs, and is here.
  int SlabOf(int local) const;
  // The slabs here that have a part of a logical one, ascending.
  std::vector<int> LocalSlabsOf(int logical) const;
  // Slabs that a visit of `layer` uses, ascending; none where it is not
  // visited.
  const std::vector<int>& slabs_of_layer(int layer) const {
    return At(slabs_of_layer_, layer);
  }

  // Whether slabs have the plane: the same on all ranks.
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
  Range owned(int slab) const { return OwnedBy(slab, rank_); }
  Range OwnedBy(int slab, int rank) const {
    return layout_.OwnedBy(IndexOf(slab), rank);
  }
  // Address of element `element` (counted from the slab's start), which must be
  // held: of the device, or, of what is at home on the host and not redirected,
  // of the host, where the device reads and writes it, if slowly. Whole planes
  // have room for ShardElements(n) * n elements, n ranks of a group. Of a
  // state: of an elementwise value; neighbours of the same format are
  // neighbours there, but for the scales.
  void* at(int slab, Plane plane, int64_t element) const;

  const std::vector<StateSpec>& states() const { return options_.states; }
  StatePlace state(int slab, int state, size_t param) const;
  // The plane's home: all of it, bytes(slab, plane).
  void* home(int slab, Plane plane) const {
    return At(At(planes_, plane), slab).home;
  }
  // Where it is: at home, or in a copy.
  void* now(int slab, Plane plane) const {
    return At(At(planes_, plane), slab).now;
  }
  // From here on the plane is in a copy at `copy`, of its size, until it is
  // null: at home again. Nobody else uses the plane meanwhile.
  void Redirect(int slab, Plane plane, void* copy);
  // What has the planes that are at home on the host, each by its name; null
  // where none are, or nothing is allocated.
  const HostArena* host() const { return host_.get(); }

  // Updates the optimizer has made to each slab (bias correction); saved.
  std::vector<int64_t>& updates() { return updates_; }
  const std::vector<int64_t>& updates() const { return updates_; }

  // Bytes that a plane of a slab, or the planes of a kind in a tier, take on
  // this rank.
  int64_t bytes(int slab, Plane plane) const;
  int64_t bytes(Plane plane, Tier tier = Tier::kDevice) const;
  // Of the optimizer's state, with the master.
  int64_t state_bytes(Tier tier = Tier::kDevice) const;
  // Elements of all slabs without padding, and the same counted once for each
  // layer that is visited and uses them.
  int64_t unique_parameters() const;
  int64_t virtual_parameters() const;

 private:
  ParamStore(Device& device, Layout layout, int rank, const Options& options);
  // Of a slab that is here, in Layout::local_slabs.
  int IndexOf(int slab) const { return At(indices_, slab); }
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
  Layout layout_;
  int rank_ = 0;
  Options options_;
  std::vector<int> indices_;  // by slab
  std::vector<Slab> slabs_;
  std::vector<std::vector<int>> slabs_of_layer_;         // by layer
  std::vector<std::vector<StateLayout>> state_layouts_;  // by state, slab
  struct PlaneMemory {
    Buffer buffer;  // at home on the device
    void* home = nullptr;
    void* now = nullptr;  // where it is
  };
  std::vector<std::vector<PlaneMemory>> planes_;  // by plane, slab
  std::unique_ptr<HostArena> host_;  // of what is at home there, if anything
  std::vector<int64_t> updates_;     // by slab
};

}  // namespace delink
