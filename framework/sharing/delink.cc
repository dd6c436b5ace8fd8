#include "framework/sharing/delink.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"
#include "framework/sharing/resolve.h"
#include "framework/sharing/state_change.h"

namespace delink {
namespace {

bool HasState(const ParamStore& store, const std::string& name) {
  return std::any_of(store.states().begin(), store.states().end(),
                     [&](const StateSpec& spec) { return spec.name == name; });
}

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
        old_values_(from),
        new_values_(to) {
    for (const LogicalTensor& tensor : from.layout().tensors()) {
      if (!tensor.link.empty()) continue;
      old_tensors_[{tensor.slab, tensor.param}] = &tensor;
    }
  }

  absl::Status Run() {
    for (const auto& [plane, kind] :
         {std::pair{Plane::kWeight, Field::Kind::kWeight},
          std::pair{Plane::kMaster, Field::Kind::kMaster},
          std::pair{Plane::kLow, Field::Kind::kLow},
          std::pair{Plane::kWeight, Field::Kind::kParameters}}) {
      if (to_.has(plane)) DELINK_RETURN_IF_ERROR(Carry({.kind = kind}));
    }
    for (size_t k = 0; k < to_.states().size(); ++k) {
      const StateSpec& spec = to_.states()[k];
      Zero(static_cast<int>(k));
      if (!HasState(from_, spec.name)) continue;
      DELINK_RETURN_IF_ERROR(Carry(
          {.kind = Field::Kind::kState, .state = spec.name}, spec.degree));
    }
    return CountUpdates();
  }

 private:
  // New tensors with the same places on all ranks, each in its own slab.
  struct Alike {
    Descriptor places;
    std::vector<const LogicalTensor*> tensors;
  };

  bool Resets(int slab) const {
    return BeginsAnew(At(origins_, slab), policy_);
  }

  // States are zero unless values are carried to them.
  void Zero(int state) {
    const std::unique_ptr<Stream> stream = to_.device().NewStream();
    for (size_t s = 0; s < to_.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      to_.device().FillZero(*stream, to_.state(slab, state, 0).values,
                            to_.bytes(slab, StatePlane(state)));
    }
    stream->Synchronize();
  }

  // Moves the values of all tensors. The values of one old tensor cross host
  // and network once, to the first of the new tensors with the same places; the
  // others copy them from there.
  absl::Status Carry(const Field& field, int degree = 0) {
    std::map<std::tuple<int, size_t, double>, std::vector<Alike>> families;
    std::vector<Move> moves, copies;
    for (const LogicalTensor& tensor : to_.layout().tensors()) {
      const bool state = field.kind == Field::Kind::kState;
      const SlabOrigin& origin = At(origins_, tensor.slab);
      if (!tensor.link.empty() || origin.fresh()) continue;
      // An exact parameter is carried as kParameters alone (store_values.h).
      const bool whole = field.kind == Field::Kind::kParameters;
      if (!state && whole != to_.IsExact(tensor)) continue;
      if (state && Resets(tensor.slab)) continue;
      const LogicalTensor& old = *old_tensors_.at({origin.slab, tensor.param});
      if (state && old_values_.Owners(field, old).empty()) continue;
      const double divisor = state ? StateDivisor(origin, policy_, degree) : 1;
      AddTo(families[{origin.slab, tensor.param, divisor}], field, tensor);
    }
    for (const auto& [key, family] : families) {
      const auto& [slab, param, divided_by] = key;
      const double divisor = divided_by;
      Move& move = moves.emplace_back();
      move.field = field;
      move.from = old_tensors_.at({slab, param});
      if (divisor != 1) {
        move.change = [divisor](std::span<double> values, int64_t) {
          for (double& value : values) value /= divisor;
        };
      }
      for (const Alike& alike : family) {
        move.to.push_back(alike.tensors[0]);
        if (alike.tensors.size() == 1) continue;
        Move& copy = copies.emplace_back();
        copy.field = field;
        copy.from = alike.tensors[0];
        copy.to.assign(alike.tensors.begin() + 1, alike.tensors.end());
      }
    }
    DELINK_RETURN_IF_ERROR(MoveValues(old_values_, new_values_, moves, comm_));
    // A separate call, because they read what the first one has written.
    return MoveValues(new_values_, new_values_, copies, comm_);
  }

  void AddTo(std::vector<Alike>& family, const Field& field,
             const LogicalTensor& tensor) const {
    Descriptor places = new_values_.Wants(field, tensor);
    for (Extent& place : places) place.slab = 0;
    const auto at = std::find_if(
        family.begin(), family.end(),
        [&](const Alike& alike) { return alike.places == places; });
    if (at != family.end()) {
      at->tensors.push_back(&tensor);
    } else {
      family.push_back({std::move(places), {&tensor}});
    }
  }

  // A slab whose state was carried keeps the update count of its old slab.
  absl::Status CountUpdates() {
    std::vector<int64_t> before(from_.layout().slabs().size(), 0);
    for (size_t s = 0; s < from_.slabs().size(); ++s) {
      At(before, from_.local(static_cast<int>(s)).logical) = from_.updates()[s];
    }
    // Without a pipeline every rank has some part of every slab.
    if (from_.layout().mesh().pipeline > 1) {
      DELINK_RETURN_IF_ERROR(comm_
                                 .AllReduce(before.data(),
                                            static_cast<int64_t>(before.size()),
                                            DType::kI64, ReduceOp::kMax)
                                 ->Wait());
    }
    const bool any = to_.states().empty() ||
                     std::any_of(to_.states().begin(), to_.states().end(),
                                 [&](const StateSpec& spec) {
                                   return HasState(from_, spec.name);
                                 });
    for (size_t s = 0; s < to_.slabs().size(); ++s) {
      const int slab = to_.local(static_cast<int>(s)).logical;
      to_.updates()[s] =
          any && !Resets(slab) ? At(before, At(origins_, slab).slab) : 0;
    }
    return absl::OkStatus();
  }

  const ParamStore& from_;
  ParamStore& to_;
  const std::vector<SlabOrigin>& origins_;
  StatePolicy policy_;
  Communicator& comm_;
  StoreValues old_values_, new_values_;
  // By slab and parameter, without links.
  std::map<std::pair<int, size_t>, const LogicalTensor*> old_tensors_;
};

}  // namespace

absl::Status Delink(const ParamStore& from, ParamStore& to, StatePolicy policy,
                    Communicator& comm, const Growth& growth) {
  DELINK_CHECK(&from.registry() == &to.registry());
  DELINK_CHECK(&from.device() == &to.device());
  DELINK_CHECK(from.options().dtype == to.options().dtype);
  for (const Plane plane : {Plane::kMaster, Plane::kLow}) {
    DELINK_CHECK_EQ(from.has(plane), to.has(plane));
  }
  DELINK_CHECK_EQ(from.ranks(), to.ranks());
  DELINK_CHECK_EQ(from.rank(), to.rank());
  DELINK_CHECK_EQ(comm.size(), to.ranks());
  DELINK_ASSIGN_OR_RETURN(const std::vector<SlabOrigin> origins,
                          GrowthOf(to.registry(), to.blocks(), from.sharing(),
                                   to.sharing(), growth));
  InitFresh(to, origins, growth);
  return Switch(from, to, origins, policy, comm).Run();
}

}  // namespace delink
