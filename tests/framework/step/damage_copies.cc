// Ways to break programs whose weights are copied.
#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/framework/step/damage.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

bool IsOfCopy(const Program& program, const Instruction& i) {
  return i.slab >= 0 && CopyClassOf(program.shape, i.slab) >= 0;
}

// The index of some kFetch or kRelease of a copy, or -1.
int32_t PickCopy(const Program& program, Op op, Dice& dice) {
  const auto found = Where(program.instructions, [&](const Instruction& i) {
    return i.op == op && IsOfCopy(program, i);
  });
  return found.empty() ? -1 : Pick(found, dice);
}

std::string On(Op op, int32_t slab) {
  return ToString(Instruction{.op = op, .slab = slab});
}

Program& Any(Ranks& ranks, Dice& dice) {
  return ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
}

template <Op op>
Result DropOfCopy(Ranks& ranks, Dice& dice) {
  Program& program = Any(ranks, dice);
  const int32_t at = PickCopy(program, op, dice);
  if (at < 0) return std::nullopt;
  const int32_t slab = program.instructions[at].slab;
  program.instructions.erase(program.instructions.begin() + at);
  return Damaged{{On(Op::kRelease, slab), On(Op::kFetch, slab),
                  "no copy is free: a Release must come before it"}};
}

// Before the last visit that reads it.
Result CopyReleasedTooEarly(Ranks& ranks, Dice& dice) {
  Program& program = Any(ranks, dice);
  Instructions& list = program.instructions;
  const int32_t from = PickCopy(program, Op::kRelease, dice);
  if (from < 0) return std::nullopt;
  const int32_t slab = list[from].slab;
  int32_t last = -1;
  for (int32_t i = 0; i < from; ++i) {
    if (list[i].layer < 0 || list[i].op == Op::kInspect) continue;
    const auto& slabs = program.shape.slabs_of_layer[list[i].layer];
    if (std::binary_search(slabs.begin(), slabs.end(), slab)) last = i;
  }
  Move(list, from, dice.Between(0, last));
  return Damaged{{On(Op::kRelease, slab), On(Op::kFetch, slab)}};
}

// A class has room for one less than are there at a time.
Result OneCopyTooMany(Ranks& ranks, Dice& dice) {
  const Program& program = ranks.front();
  std::vector<int32_t> there(program.shape.copies.size()), peak(there);
  for (const Instruction& i : program.instructions) {
    if (!IsOfCopy(program, i)) continue;
    const int32_t c = CopyClassOf(program.shape, i.slab);
    if (i.op == Op::kFetch) peak[c] = std::max(peak[c], ++there[c]);
    if (i.op == Op::kRelease) --there[c];
  }
  const int32_t c = dice.Below(static_cast<int32_t>(peak.size()));
  if (peak[c] == 0) return std::nullopt;
  for (Program& of : ranks) of.shape.copies[c] = peak[c] - 1;
  return Damaged{{"no copy is free: a Release must come before it"}};
}

// Whoever updates would leave a copy of other weights.
Result UpdateUnderACopy(Ranks& ranks, Dice& dice) {
  Program& program = Any(ranks, dice);
  Instructions& list = program.instructions;
  const int32_t from = PickCopy(program, Op::kRelease, dice);
  if (from < 0) return std::nullopt;
  const Instruction release = list[from];
  const auto updates = Where(list, [&](const Instruction& i) {
    return i.op == Op::kUpdate && i.slab == release.slab;
  });
  const auto fetches = Where(list, [&](const Instruction& i) {
    return i.op == Op::kFetch && i.slab == release.slab;
  });
  if (updates.empty() || fetches.back() > from) return std::nullopt;
  Move(list, from, updates.front());
  return Damaged{{On(Op::kRelease, release.slab),
                  "no copy is free: a Release must come before it"}};
}

}  // namespace

std::vector<Damage> DamagesOfCopies() {
  std::vector<Damage> all = {
      {"fetch of a copy dropped", PassKind::kStep, DropOfCopy<Op::kFetch>},
      {"release dropped", PassKind::kStep, DropOfCopy<Op::kRelease>},
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
