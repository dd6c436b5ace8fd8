#include "offload/plan/residency.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "framework/base/check.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/program/shape_table.h"

namespace delink {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
// Writes the program.
class Resident {
 public:
  Resident(const Program& bare, const ChooseCopy& choose)
      : bare_(bare),
        choose_(choose),
        table_(bare.shape),
        sharers_(SharersOf(bare.shape)),
        there_(bare.shape.copies.size()) {
    to_ = {.shape = bare.shape, .kind = bare.kind, .stage = bare.stage};
    for (std::vector<Place>& places : places_) {
      places.resize(static_cast<size_t>(bare.shape.slabs));
    }
    FindUses();
  }

  Program Run() {
    for (size_t i = 0; i < bare_.instructions.size(); ++i) {
      at_ = static_cast<int32_t>(i);
      const Instruction& instruction = bare_.instructions[i];
      std::vector<PlaneUse> uses = PlanesUsed(bare_.shape, instruction);
      std::erase_if(uses, [&](const PlaneUse& use) {
        return ClassOf(use.planes, use.slab) < 0;
      });
      for (const PlaneUse& use : uses) Bring(use, uses);
      to_.instructions.push_back(instruction);
      for (const PlaneUse& use : uses) {
        Place& place = PlaceOf(use.planes, use.slab);
        if (use.writes) place.dirty = place.holds = true;
      }
      for (const PlaneUse& use : uses) {
        const bool again = PlaceOf(use.planes, use.slab).next() != kNever;
        if (!again) LetGo(use.planes, use.slab, instruction.lane);
      }
    }
    return std::move(to_);
  }

 private:
  struct Place {
    bool there = false, dirty = false;
    bool holds = false;  // of a gradient: contributions of this step
    // The instructions by which the device uses it, ascending; and for each,
    // whether the host needs it before the next use.
    std::vector<int32_t> uses;
    std::vector<bool> goes_home;
    size_t done = 0;  // uses up to here

    // The next use of the copy that is on the device.
    int32_t next() const {
      if (done == uses.size()) return kNever;
      return done > 0 && goes_home[done - 1] ? kNever : uses[done];
    }
  };

  Place& PlaceOf(PlaneSet planes, int32_t slab) {
    return places_[static_cast<size_t>(planes)][static_cast<size_t>(slab)];
  }
  int32_t ClassOf(PlaneSet planes, int32_t slab) const {
    return CopyClassOf(bare_.shape, planes, slab);
  }

  void FindUses() {
    const auto home = [&](PlaneSet planes, int32_t slab) {
      Place& place = PlaceOf(planes, slab);
      if (!place.uses.empty()) place.goes_home.back() = true;
    };
    for (size_t i = 0; i < bare_.instructions.size(); ++i) {
      const Instruction& at = bare_.instructions[i];
      for (const PlaneUse& use : PlanesUsed(bare_.shape, at)) {
        Place& place = PlaceOf(use.planes, use.slab);
        place.uses.push_back(static_cast<int32_t>(i));
        place.goes_home.push_back(false);
      }
      const bool updates = at.op == Op::kUpdate || at.op == Op::kGather;
      for (const PlaneSet planes : kAllPlaneSets) {
        if (updates && HostUpdates(bare_.shape, at.slab)) home(planes, at.slab);
      }
      // Such an update fetches the weights from the host into its own copy.
      if (updates && UpdatedSet(bare_.shape, at.slab) == PlaneSet::kUpdated) {
        home(PlaneSet::kWeight, at.slab);
      }
      for (int32_t s = 0; s < bare_.shape.slabs && at.op == Op::kSum; ++s) {
        home(PlaneSet::kGradient, s);
      }
    }
  }

  // Called before the instruction at_, which makes this use.
  void Bring(const PlaneUse& use, const std::vector<PlaneUse>& beside) {
    Place& place = PlaceOf(use.planes, use.slab);
    DELINK_CHECK_EQ(place.uses[place.done], at_);
    ++place.done;
    if (place.there) return;
    MakeRoom(use, beside);
    const bool fresh = use.planes == PlaneSet::kGradient && !place.holds;
    Add(fresh ? Op::kTake : Op::kFetch, use.planes, use.slab);
    place.there = true;
    there_[static_cast<size_t>(ClassOf(use.planes, use.slab))].push_back(
        {use.planes, use.slab});
  }

  void MakeRoom(const PlaneUse& use, const std::vector<PlaneUse>& beside) {
    const int32_t copy_class = ClassOf(use.planes, use.slab);
    std::vector<std::pair<PlaneSet, int32_t>>& there =
        there_[static_cast<size_t>(copy_class)];
    const auto copies = static_cast<size_t>(copy_class);
    if (std::ssize(there) < bare_.shape.copies[copies]) return;
    std::vector<size_t> candidates;
    std::vector<int32_t> uses;
    for (size_t k = 0; k < there.size(); ++k) {
      const PlaneSet planes = there[k].first;
      const int32_t slab = there[k].second;
      const bool at_work =
          std::any_of(beside.begin(), beside.end(), [&](const PlaneUse& other) {
            return other.planes == planes && other.slab == slab;
          });
      if (at_work) continue;
      candidates.push_back(k);
      uses.push_back(PlaceOf(planes, slab).next());
    }
    DELINK_CHECK(!candidates.empty())
        << ToString(bare_.instructions[static_cast<size_t>(at_)])
        << " works on more of a class than it has copies";
    const auto [planes, slab] = there[candidates[choose_(uses)]];
    // Its last use may be long ago, so its successor should not wait for
    // everything computed before.
    LetGo(planes, slab,
          table_.LaneOf(MoveOf(Op::kFetch, use.planes, use.slab)));
  }

  // Whether anything reads what was written in it.
  bool IsNeeded(PlaneSet planes, int32_t slab) {
    if (planes != PlaneSet::kGradient) return true;
    if (PlaceOf(planes, slab).next() != kNever) return true;
    const Instruction& at = bare_.instructions[static_cast<size_t>(at_)];
    if (bare_.kind == PassKind::kProbe) {
      return sharers_[static_cast<size_t>(slab)] > 1;
    }
    return at.op != Op::kUpdate || at.slab != slab;
  }

  // `releases`: the lane of the kRelease if nothing is evicted. It is the lane
  // that used the copy last or the one that waits for it, so that no other
  // waits.
  void LetGo(PlaneSet planes, int32_t slab, Lane releases) {
    Place& place = PlaceOf(planes, slab);
    const bool evicts = place.dirty && IsNeeded(planes, slab);
    if (evicts) Add(Op::kEvict, planes, slab);
    if (evicts) releases = table_.LaneOf(MoveOf(Op::kEvict, planes, slab));
    Add(Op::kRelease, planes, slab, releases);
    place.there = place.dirty = false;
    std::erase(there_[static_cast<size_t>(ClassOf(planes, slab))],
               std::pair(planes, slab));
  }

  static Instruction MoveOf(Op op, PlaneSet planes, int32_t slab) {
    return {.op = op, .flags = FlagOf(planes), .slab = slab};
  }
  void Add(Op op, PlaneSet planes, int32_t slab) {
    Add(op, planes, slab, table_.LaneOf(MoveOf(op, planes, slab)));
  }
  void Add(Op op, PlaneSet planes, int32_t slab, Lane lane) {
    Instruction i = MoveOf(op, planes, slab);
    i.lane = lane;
    to_.instructions.push_back(i);
  }

  const Program& bare_;
  const ChooseCopy& choose_;
  const ShapeTable table_;
  const std::vector<int32_t> sharers_;
  std::array<std::vector<Place>, kPlaneSets> places_;  // by set, slab
  std::vector<std::vector<std::pair<PlaneSet, int32_t>>> there_;  // by class
  int32_t at_ = 0;  // the instruction that comes next
  Program to_;
};

}  // namespace

size_t WantedLast(const std::vector<int32_t>& uses) {
  return static_cast<size_t>(std::max_element(uses.begin(), uses.end()) -
                             uses.begin());
}

Program AddResidency(const Program& bare, const ChooseCopy& choose) {
  if (bare.shape.copies.empty()) return bare;
  return Resident(bare, choose).Run();
}

Planner WithResidency(Planner planner) {
  return [planner = std::move(planner)](
             PassKind kind, const ProgramShape& shape, int32_t stage) {
    return AddResidency(planner(kind, shape, stage));
  };
}

}  // namespace delink
