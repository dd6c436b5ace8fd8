// Ways to break programs some of whose planes are not at home on the device.
#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/framework/step/cells.h"
#include "tests/framework/step/damage.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

// The index of some instruction of a copy, or -1.
int32_t PickCopy(const Program& program, Op op, Dice& dice) {
  const auto found = Where(program.instructions,
                           [&](const Instruction& i) { return i.op == op; });
  return found.empty() ? -1 : Pick(found, dice);
}

bool OfSameCopy(const Instruction& a, const Instruction& b) {
  return IsOfPlanes(a) && a.slab == b.slab && PlaneSetOf(a) == PlaneSetOf(b);
}

// Whatever is said of the copy that `i` is of, or that there are too few.
Damaged OfCopy(Instruction i) {
  Damaged damaged{{"no copy is free: a Release must come before it"}};
  for (const Op op : {Op::kFetch, Op::kTake, Op::kEvict, Op::kRelease}) {
    i.op = op;
    damaged.names.push_back(ToString(i));
  }
  return damaged;
}

Program& AnyProgram(Ranks& ranks, Dice& dice) {
  return ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
}

template <Op op>
Result DropOfCopy(Ranks& ranks, Dice& dice) {
  Program& program = AnyProgram(ranks, dice);
  const int32_t at = PickCopy(program, op, dice);
  if (at < 0) return std::nullopt;
  const Instruction dropped = program.instructions[at];
  program.instructions.erase(program.instructions.begin() + at);
  return OfCopy(dropped);
}

// A gradient is begun anew that has contributions, or what is not there comes.
template <Op op, Op other>
Result Another(Ranks& ranks, Dice& dice) {
  Program& program = AnyProgram(ranks, dice);
  const auto found = Where(program.instructions, [&](const Instruction& i) {
    return i.op == op && PlaneSetOf(i) == PlaneSet::kGradient;
  });
  if (found.empty()) return std::nullopt;
  Instruction& at = program.instructions[Pick(found, dice)];
  at.op = other;
  return Damaged{{ToString(at)}};
}

// Before the last that works on it.
Result CopyReleasedTooEarly(Ranks& ranks, Dice& dice) {
  Program& program = AnyProgram(ranks, dice);
  Instructions& list = program.instructions;
  const int32_t from = PickCopy(program, Op::kRelease, dice);
  if (from < 0) return std::nullopt;
  const Instruction release = list[from];
  int32_t last = -1;
  for (int32_t i = 0; i < from; ++i) {
    for (const Work& work : WorkOf(program.shape, list[i])) {
      if (work.slab != release.slab) continue;
      if (work.planes == PlaneSetOf(release)) last = i;
    }
  }
  Move(list, from, dice.Between(0, last));
  return OfCopy(release);
}

// A class has room for one less than are there at a time.
Result OneCopyTooMany(Ranks& ranks, Dice& dice) {
  const Program& program = ranks.front();
  std::vector<int32_t> there(program.shape.copies.size()), peak(there);
  for (const Instruction& i : program.instructions) {
    if (!IsOfPlanes(i)) continue;
    const int32_t c = CopyClassOf(program.shape, PlaneSetOf(i), i.slab);
    if (i.op == Op::kFetch || i.op == Op::kTake) {
      peak[c] = std::max(peak[c], ++there[c]);
    }
    if (i.op == Op::kRelease) --there[c];
  }
  const int32_t c = dice.Below(static_cast<int32_t>(peak.size()));
  if (peak[c] == 0) return std::nullopt;
  for (Program& of : ranks) of.shape.copies[c] = peak[c] - 1;
  return Damaged{{"no copy is free: a Release must come before it"}};
}

// The host would update what the device has a copy of.
Result UpdateUnderACopy(Ranks& ranks, Dice& dice) {
  Program& program = AnyProgram(ranks, dice);
  Instructions& list = program.instructions;
  const int32_t from = PickCopy(program, Op::kRelease, dice);
  if (from < 0) return std::nullopt;
  const Instruction release = list[from];
  if (!HostUpdates(program.shape, release.slab)) return std::nullopt;
  const auto updates = Where(list, [&](const Instruction& i) {
    return i.op == Op::kUpdate && i.slab == release.slab;
  });
  const auto arrivals = Where(list, [&](const Instruction& i) {
    return OfSameCopy(i, release) && i.op != Op::kRelease && i.op != Op::kEvict;
  });
  if (updates.empty() || arrivals.back() > from) return std::nullopt;
  Move(list, from, updates.front());
  return OfCopy(release);
}

}  // namespace

std::vector<Damage> DamagesOfCopies() {
  std::vector<Damage> all = {
      {"fetch of a copy dropped", PassKind::kStep, DropOfCopy<Op::kFetch>},
      {"release dropped", PassKind::kStep, DropOfCopy<Op::kRelease>},
      {"take dropped", PassKind::kStep, DropOfCopy<Op::kTake>},
      {"evict dropped", PassKind::kStep, DropOfCopy<Op::kEvict>},
      {"evict of a probe dropped", PassKind::kProbe, DropOfCopy<Op::kEvict>},
      {"gradient taken, not fetched", PassKind::kStep,
       Another<Op::kFetch, Op::kTake>},
      {"gradient fetched, not taken", PassKind::kStep,
       Another<Op::kTake, Op::kFetch>},
      {"release of an evaluation dropped", PassKind::kEvaluation,
       DropOfCopy<Op::kRelease>},
      {"copy released too early", PassKind::kStep, CopyReleasedTooEarly},
      {"one copy too many", PassKind::kStep, OneCopyTooMany},
      {"update under a copy", PassKind::kStep, UpdateUnderACopy},
  };
  for (Damage& damage : all) damage.copies = true;
  return all;
}

}  // namespace delink::step_test
