#include "framework/step/proof/copy_rules.h"

#include "absl/strings/str_cat.h"

namespace delink {
namespace {

std::string On(Op op, PlaneSet planes, int32_t slab) {
  return ToString(Instruction{.op = op, .flags = FlagOf(planes), .slab = slab});
}

// "the gradient of slab 3"
std::string NameOf(PlaneSet planes, int32_t slab) {
  constexpr const char* kNames[] = {"weights", "gradient", "state",
                                    "updated weights"};
  return absl::StrCat("the ", kNames[static_cast<size_t>(planes)], " of slab ",
                      slab);
}

const char* Is(PlaneSet planes) { return IsOfWeights(planes) ? "are" : "is"; }

std::string First(const std::string& instruction) {
  return absl::StrCat(instruction, " must come before it");
}

}  // namespace

CopyRules::CopyRules(const Program& program)
    : program_(program),
      shape_(program.shape),
      sharers_(SharersOf(program.shape)),
      free_(program.shape.copies),
      contributed_(program.shape.slabs, false) {
  for (const PlaneSet planes : kAllPlaneSets) {
    for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
      places_[static_cast<size_t>(planes)].push_back(
          {.copy_class = CopyClassOf(shape_, planes, slab)});
    }
  }
}

void CopyRules::BeginStep() {
  contributed_.assign(shape_.slabs, false);
  for (Place& place : places_[static_cast<size_t>(PlaneSet::kGradient)]) {
    place.stale = false;  // a gradient begins anew
  }
}

std::string CopyRules::Use(const Instruction& instruction) {
  for (const PlaneUse& use : PlanesUsed(shape_, instruction)) {
    if (use.planes == PlaneSet::kGradient && use.writes) {
      contributed_[use.slab] = true;
    }
    Place& place = At(use.planes, use.slab);
    if (place.copy_class < 0 && use.planes == PlaneSet::kUpdated) {
      // The shard changes, so no whole copy may be left.
      const std::string error = CheckAtHome(PlaneSet::kWeight, use.slab);
      if (!error.empty()) return error;
    }
    if (place.copy_class < 0) continue;
    if (!place.there) {
      const bool fresh = use.planes == PlaneSet::kGradient &&
                         IsVisit(instruction) && !place.stale;
      return absl::StrCat(
          NameOf(use.planes, use.slab), " ", Is(use.planes),
          " not there: ", First(On(Op::kFetch, use.planes, use.slab)),
          fresh ? absl::StrCat(", or ", On(Op::kTake, use.planes, use.slab))
                : "");
    }
    if (use.writes) place.dirty = place.stale = true;
  }
  return "";
}

std::string CopyRules::Check(const Instruction& instruction, bool updated) {
  const PlaneSet planes = PlaneSetOf(instruction);
  if (At(planes, instruction.slab).copy_class < 0) {
    return absl::StrCat(NameOf(planes, instruction.slab), " ", Is(planes),
                        " at home: there are no copies");
  }
  if (instruction.op == Op::kEvict) return CheckEvict(instruction);
  if (instruction.op == Op::kRelease) return CheckRelease(instruction, updated);
  return CheckArrival(instruction);
}

std::string CopyRules::CheckArrival(const Instruction& i) {
  const PlaneSet planes = PlaneSetOf(i);
  Place& place = At(planes, i.slab);
  if (place.there) {
    return absl::StrCat(
        NameOf(planes, i.slab), " ", Is(planes),
        " already there: ", First(On(Op::kRelease, planes, i.slab)));
  }
  if (place.stale) {
    return absl::StrCat("what was written last is not at home: ",
                        First(On(Op::kEvict, planes, i.slab)));
  }
  // The same planes come once.
  if (IsOfWeights(planes)) {
    const bool updated = planes == PlaneSet::kUpdated;
    const std::string error =
        CheckAtHome(updated ? PlaneSet::kWeight : PlaneSet::kUpdated, i.slab);
    if (!error.empty()) return error;
  }
  if (planes == PlaneSet::kGradient &&
      contributed_[i.slab] != (i.op == Op::kFetch)) {
    const Op other = i.op == Op::kFetch ? Op::kTake : Op::kFetch;
    return absl::StrCat(NameOf(planes, i.slab), " has ",
                        contributed_[i.slab] ? "contributions" : "nothing yet",
                        ": ", On(other, planes, i.slab), " is what it needs");
  }
  if (free_[place.copy_class] == 0) {
    return "no copy is free: a Release must come before it";
  }
  --free_[place.copy_class];
  place.there = true;
  return "";
}

std::string CopyRules::CheckEvict(const Instruction& i) {
  Place& place = At(PlaneSetOf(i), i.slab);
  if (!place.there || !place.dirty) {
    return place.there ? "nothing was written in the copy"
                       : "there is no copy of it";
  }
  place.dirty = place.stale = false;
  return "";
}

std::string CopyRules::CheckRelease(const Instruction& i, bool updated) {
  const PlaneSet planes = PlaneSetOf(i);
  Place& place = At(planes, i.slab);
  if (!place.there) return "there is no copy to release";
  bool needed = true;
  if (planes == PlaneSet::kGradient) {
    needed =
        program_.kind == PassKind::kProbe ? sharers_[i.slab] > 1 : !updated;
  }
  if (place.dirty && needed) {
    return absl::StrCat("what was written in the copy would be lost: ",
                        First(On(Op::kEvict, planes, i.slab)));
  }
  place.there = place.dirty = false;
  ++free_[place.copy_class];
  return "";
}

std::string CopyRules::CheckHome(int32_t slab) const {
  for (const PlaneSet planes : kAllPlaneSets) {
    std::string error = CheckAtHome(planes, slab);
    if (!error.empty()) return error;
  }
  return "";
}

std::string CopyRules::CheckAtHome(PlaneSet planes, int32_t slab) const {
  const Place& place = At(planes, slab);
  const Op op = place.dirty ? Op::kEvict : Op::kRelease;
  if (place.there) {
    return absl::StrCat("the copy of ", NameOf(planes, slab),
                        " would be another than what is at home: ",
                        First(On(op, planes, slab)));
  }
  if (place.stale) {
    return absl::StrCat(NameOf(planes, slab), " ", Is(planes),
                        " not at home: ", First(On(Op::kEvict, planes, slab)));
  }
  return "";
}

std::string CopyRules::CheckSum() const {
  for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
    if (program_.kind != PassKind::kProbe || sharers_[slab] < 2) continue;
    if (!At(PlaneSet::kGradient, slab).stale) continue;
    if (At(PlaneSet::kGradient, slab).copy_class < 0) continue;
    return absl::StrCat(NameOf(PlaneSet::kGradient, slab), " is not at home: ",
                        First(On(Op::kEvict, PlaneSet::kGradient, slab)));
  }
  return "";
}

std::string CopyRules::CheckSave(int32_t slab) const {
  for (const PlaneSet planes :
       {PlaneSet::kWeight, PlaneSet::kState, PlaneSet::kUpdated}) {
    if (!At(planes, slab).stale) continue;
    return absl::StrCat(NameOf(planes, slab), " ", Is(planes),
                        " not at home: ", First(On(Op::kEvict, planes, slab)));
  }
  return "";
}

std::string CopyRules::FindKept() const {
  for (const PlaneSet planes : kAllPlaneSets) {
    for (int32_t slab = 0; slab < shape_.slabs; ++slab) {
      if (At(planes, slab).there) return On(Op::kRelease, planes, slab);
    }
  }
  return "";
}

}  // namespace delink
