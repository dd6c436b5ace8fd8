#include "framework/sharing/delink.h"

#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/device_exchange.h"
#include "framework/sharing/plane_pieces.h"
#include "framework/sharing/resolve.h"

namespace delink {
namespace {

class Switch {
 public:
  Switch(const ParamStore& from, ParamStore& to, StatePolicy policy,
         Communicator& comm)
      : from_(from),
        to_(to),
        policy_(policy),
        device_(to.device()),
        stream_(device_.NewStream()),
        exchange_(device_, *stream_, comm) {}

  absl::Status Slab(int slab, const SlabOrigin& origin) {
    const delink::Slab& target = to_.slabs()[static_cast<size_t>(slab)];
    DELINK_CHECK_EQ(target.elements,
                    from_.slabs()[static_cast<size_t>(origin.slab)].elements);
    DELINK_RETURN_IF_ERROR(CopyPlane(slab, origin.slab, Plane::kWeight));
    if (to_.has(Plane::kMaster)) {
      DELINK_RETURN_IF_ERROR(CopyPlane(slab, origin.slab, Plane::kMaster));
    }
    const bool reset = policy_ == StatePolicy::kReset && origin.changed();
    bool kept = false;
    for (const Plane plane : {Plane::kState0, Plane::kState1}) {
      if (!to_.has(plane)) continue;
      if (reset || !from_.has(plane)) {
        Zero(slab, plane);
        continue;
      }
      kept = true;
      DELINK_RETURN_IF_ERROR(CopyPlane(slab, origin.slab, plane));
      if (policy_ == StatePolicy::kScale && origin.changed()) {
        const double n = static_cast<double>(origin.before) / origin.after;
        // The first moment is linear in the gradient, the second quadratic.
        Divide(slab, plane, plane == Plane::kState0 ? n : n * n);
      }
    }
    to_.updates()[static_cast<size_t>(slab)] =
        kept ? from_.updates()[static_cast<size_t>(origin.slab)] : 0;
    stream_->Synchronize();
    return absl::OkStatus();
  }

 private:
  // What both ranks' planes hold, then the rest from the other ranks.
  absl::Status CopyPlane(int slab, int origin, Plane plane) {
    const Range have = from_.held(origin, plane);
    const Range want = to_.held(slab, plane);
    const Range both = Overlap(have, want);
    if (both.size() > 0) {
      device_.Copy(*stream_, to_.at(slab, plane, both.begin),
                   from_.at(origin, plane, both.begin),
                   both.size() * SizeOf(to_.dtype(plane)));
    }
    // Decided by the placement, which all ranks know alike.
    if (!Sharded(from_, origin, plane) || Sharded(to_, slab, plane)) {
      return absl::OkStatus();
    }
    return exchange_.AllGather(
        to_.at(slab, plane, 0),
        to_.slabs()[static_cast<size_t>(slab)].ShardElements(
            to_.options().ranks),
        to_.dtype(plane));
  }

  static bool Sharded(const ParamStore& store, int slab, Plane plane) {
    const PlacementRow& row = store.placement().rows[static_cast<size_t>(slab)];
    return plane == Plane::kWeight ? row.weight.sharded : row.state.sharded;
  }

  void Zero(int slab, Plane plane) {
    const Range range = to_.held(slab, plane);
    if (range.size() == 0) return;
    device_.FillZero(*stream_, to_.at(slab, plane, range.begin),
                     range.size() * SizeOf(to_.dtype(plane)));
  }

  void Divide(int slab, Plane plane, double divisor) {
    ChangeElements(*stream_, to_, slab, plane, to_.held(slab, plane),
                   [divisor](std::span<double> values) {
                     for (double& value : values) value /= divisor;
                   });
  }

  const ParamStore& from_;
  ParamStore& to_;
  StatePolicy policy_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  DeviceExchange exchange_;
};

}  // namespace

absl::Status Delink(const ParamStore& from, ParamStore& to, StatePolicy policy,
                    Communicator& comm) {
  DELINK_CHECK(&from.registry() == &to.registry());
  DELINK_CHECK(&from.device() == &to.device());
  DELINK_CHECK(from.options().dtype == to.options().dtype);
  DELINK_CHECK(from.has(Plane::kMaster) || !to.has(Plane::kMaster));
  DELINK_CHECK_EQ(from.options().ranks, to.options().ranks);
  DELINK_CHECK_EQ(from.options().rank, to.options().rank);
  DELINK_CHECK_EQ(comm.size(), to.options().ranks);
  DELINK_ASSIGN_OR_RETURN(
      const std::vector<SlabOrigin> origins,
      RelationOf(to.registry(), to.blocks(), from.sharing(), to.sharing()));
  Switch change(from, to, policy, comm);
  for (size_t s = 0; s < origins.size(); ++s) {
    DELINK_RETURN_IF_ERROR(change.Slab(static_cast<int>(s), origins[s]));
  }
  return absl::OkStatus();
}

}  // namespace delink
