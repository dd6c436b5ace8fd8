#include "framework/sharing/delink.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/sharing/plane_pieces.h"
#include "framework/sharing/resolve.h"

namespace delink {
namespace {

class Switch {
 public:
  Switch(const ParamStore& from, ParamStore& to,
         const std::vector<SlabOrigin>& origins, StatePolicy policy,
         Communicator& comm)
      : from_(from),
        to_(to),
        origins_(origins),
        policy_(policy),
        comm_(comm),
        device_(to.device()),
        stream_(device_.NewStream()) {}

  absl::Status Slab(int slab) {
    const SlabOrigin& origin = At(origins_, slab);
    const delink::Slab& target = to_.slab(slab);
    DELINK_CHECK_EQ(target.elements, from_.slab(origin.slab).elements);
    for (const Plane plane : {Plane::kWeight, Plane::kMaster, Plane::kLow}) {
      if (!to_.has(plane)) continue;
      DELINK_RETURN_IF_ERROR(CopyPlane(slab, origin.slab, plane));
    }
    const bool reset = policy_ == StatePolicy::kReset && origin.changed();
    const bool scale = policy_ == StatePolicy::kScale && origin.changed();
    const int twin = scale ? Twin(slab) : -1;
    bool kept = to_.states().empty() && !reset;
    for (size_t k = 0; k < to_.states().size(); ++k) {
      const int state = static_cast<int>(k);
      const int before = FindState(to_.states()[k].name);
      if (reset || before < 0) {
        device_.FillZero(*stream_, to_.state(slab, state, 0).values,
                         to_.bytes(slab, StatePlane(state)));
        continue;
      }
      kept = true;
      if (twin >= 0) {
        device_.Copy(*stream_, to_.state(slab, state, 0).values,
                     to_.state(twin, state, 0).values,
                     to_.bytes(slab, StatePlane(state)));
        continue;
      }
      DELINK_RETURN_IF_ERROR(CopyState(slab, origin.slab, state, before));
      if (scale) {
        const double n = static_cast<double>(origin.before) / origin.after;
        Divide(slab, state, std::pow(n, to_.states()[k].degree));
      }
    }
    At(to_.updates(), slab) = kept ? At(from_.updates(), origin.slab) : 0;
    stream_->Synchronize();
    return absl::OkStatus();
  }

 private:
  // Of the old store; -1 where it has none of that name.
  int FindState(const std::string& name) const {
    const std::vector<StateSpec>& states = from_.states();
    const auto at =
        std::find_if(states.begin(), states.end(),
                     [&](const StateSpec& spec) { return spec.name == name; });
    return at == states.end() ? -1 : static_cast<int>(at - states.begin());
  }

  // A slab that is done and has the same state, in the same places on every
  // rank; -1 if none. What goes through the host goes there once for all that
  // come from one slab.
  int Twin(int slab) const {
    for (int other = 0; other < slab; ++other) {
      if (At(origins_, other) == At(origins_, slab) &&
          to_.placement(other) == to_.placement(slab)) {
        return other;
      }
    }
    return -1;
  }

  absl::Status CopyPlane(int slab, int origin, Plane plane) {
    const int64_t size = SizeOf(to_.dtype(plane));
    const Range want = to_.held(slab, plane);
    if (plane == Plane::kWeight || Stays(slab, origin)) {
      const Range both = Overlap(from_.held(origin, plane), want);
      DELINK_CHECK_EQ(both.size(), want.size());
      if (want.size() == 0) return absl::OkStatus();
      device_.Copy(*stream_, to_.at(slab, plane, want.begin),
                   from_.at(origin, plane, want.begin), want.size() * size);
      return absl::OkStatus();
    }
    return Exchange(
        0, size, want, [&](int rank) { return from_.OwnedBy(origin, rank); },
        [&](Range piece, char* values) {
          device_.CopyToHost(*stream_, values,
                             from_.at(origin, plane, piece.begin),
                             piece.size() * size);
          stream_->Synchronize();
        },
        [&](Range piece, const char* values) {
          device_.CopyFromHost(*stream_, to_.at(slab, plane, piece.begin),
                               values, piece.size() * size);
          stream_->Synchronize();
        });
  }

  absl::Status CopyState(int slab, int origin, int state, int before) {
    const std::vector<SlabParam>& params = to_.slab(slab).params;
    const DType exact = to_.dtype(StatePlane(state));
    const bool stays = Stays(slab, origin);
    if (stays && SameForm(slab, origin, state, before)) {
      device_.Copy(*stream_, to_.state(slab, state, 0).values,
                   from_.state(origin, before, 0).values,
                   to_.bytes(slab, StatePlane(state)));
      return absl::OkStatus();
    }
    for (size_t p = 0; p < params.size(); ++p) {
      const Range want = to_.state(slab, state, p).held;
      const auto read = [&](Range piece, char* values) {
        from_.ReadState(*stream_, origin, before, p, piece, values);
      };
      const auto write = [&](Range piece, const char* values) {
        to_.WriteState(*stream_, slab, state, p, piece, values);
      };
      if (stays) {
        Through(params[p].offset, SizeOf(exact), want, read, write);
        continue;
      }
      DELINK_RETURN_IF_ERROR(Exchange(
          params[p].offset, SizeOf(exact), want,
          [&](int rank) { return from_.StateOwnedBy(origin, before, p, rank); },
          read, write));
    }
    return absl::OkStatus();
  }

  // Whether both planes hold the same values, and alike: also the same room
  // behind them, which says where scales are.
  bool SameForm(int slab, int origin, int state, int before) const {
    const StateSpec& was = At(from_.states(), before);
    const StateSpec& is = At(to_.states(), state);
    return was.hidden == is.hidden && was.outer == is.outer &&
           was.vectors == is.vectors && was.is_signed == is.is_signed &&
           from_.held(origin, StatePlane(before)) ==
               to_.held(slab, StatePlane(state)) &&
           from_.bytes(origin, StatePlane(before)) ==
               to_.bytes(slab, StatePlane(state));
  }

  // Whether each rank has in the old store what it is to hold in the new one;
  // decided by the placement, which all ranks know alike.
  bool Stays(int slab, int origin) const {
    const PlacementRow& old = from_.placement(origin);
    const PlacementRow& now = to_.placement(slab);
    if (!old.state.sharded) return true;
    return now.state.sharded && old.owner == now.owner;
  }

  // Over the host, a piece at a time, on this rank alone.
  template <typename Read, typename Write>
  void Through(int64_t offset, int64_t size, Range want, const Read& read,
               const Write& write) {
    if (IsMeta(device_.kind())) return;
    std::vector<char> staging;
    ForEachStatePiece(offset, want, kPieceElements, [&](Range piece) {
      staging.resize(static_cast<size_t>(piece.size() * size));
      read(piece, staging.data());
      write(piece, staging.data());
    });
  }

  // What each rank owned (`owned(rank)`), a piece at a time, to all ranks, who
  // write what they `want` of it.
  template <typename Owned, typename Read, typename Write>
  absl::Status Exchange(int64_t offset, int64_t size, Range want,
                        const Owned& owned, const Read& read,
                        const Write& write) {
    if (IsMeta(device_.kind())) return absl::OkStatus();
    std::vector<char> staging;
    for (int rank = 0; rank < comm_.size(); ++rank) {
      absl::Status status;
      ForEachStatePiece(offset, owned(rank), kPieceElements, [&](Range piece) {
        if (!status.ok()) return;
        const int64_t bytes = piece.size() * size;
        staging.resize(static_cast<size_t>(bytes));
        if (rank == comm_.rank()) read(piece, staging.data());
        status =
            comm_.Broadcast(staging.data(), bytes, DType::kU8, rank)->Wait();
        const Range mine = Overlap(piece, want);
        if (!status.ok() || mine.size() == 0) return;
        write(mine, staging.data() + (mine.begin - piece.begin) * size);
      });
      DELINK_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  void Divide(int slab, int state, double divisor) {
    const std::vector<SlabParam>& params = to_.slab(slab).params;
    for (size_t p = 0; p < params.size(); ++p) {
      ChangeState(*stream_, to_, slab, state, p,
                  [divisor](std::span<double> values) {
                    for (double& value : values) value /= divisor;
                  });
    }
  }

  const ParamStore& from_;
  ParamStore& to_;
  const std::vector<SlabOrigin>& origins_;
  StatePolicy policy_;
  Communicator& comm_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

absl::Status Delink(const ParamStore& from, ParamStore& to, StatePolicy policy,
                    Communicator& comm) {
  DELINK_CHECK(&from.registry() == &to.registry());
  DELINK_CHECK(&from.device() == &to.device());
  DELINK_CHECK(from.options().dtype == to.options().dtype);
  for (const Plane plane : {Plane::kMaster, Plane::kLow}) {
    DELINK_CHECK_EQ(from.has(plane), to.has(plane));
  }
  DELINK_CHECK_EQ(from.ranks(), to.ranks());
  DELINK_CHECK_EQ(from.rank(), to.rank());
  DELINK_CHECK_EQ(comm.size(), to.ranks());
  DELINK_ASSIGN_OR_RETURN(
      const std::vector<SlabOrigin> origins,
      RelationOf(to.registry(), to.blocks(), from.sharing(), to.sharing()));
  Switch change(from, to, origins, policy, comm);
  for (size_t s = 0; s < origins.size(); ++s) {
    DELINK_RETURN_IF_ERROR(change.Slab(static_cast<int>(s)));
  }
  return absl::OkStatus();
}

}  // namespace delink
