// What ways to break programs are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/framework/step/damage.h"

namespace delink::step_test {

using Result = std::optional<Damaged>;
using Ranks = std::vector<Program>;
using Instructions = std::vector<Instruction>;

// Without flags, so that "B(1,a)" is found in "B(1,a)r" as well.
inline std::string NameOf(Instruction i) {
  i.flags = 0;
  return ToString(i);
}

inline Instructions& AnyRank(Ranks& ranks, Dice& dice) {
  return ranks[dice.Below(static_cast<int32_t>(ranks.size()))].instructions;
}

template <typename Predicate>
std::vector<int32_t> Where(const Instructions& list, const Predicate& matches) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < list.size(); ++i) {
    if (matches(list[i])) found.push_back(static_cast<int32_t>(i));
  }
  return found;
}

inline int32_t Pick(const std::vector<int32_t>& from, Dice& dice) {
  return from[dice.Below(static_cast<int32_t>(from.size()))];
}

inline int32_t IndexOf(const Instructions& list, const Instruction& i) {
  return static_cast<int32_t>(std::find(list.begin(), list.end(), i) -
                              list.begin());
}

// The index of some instruction of `op`, or -1.
inline int32_t PickOp(const Instructions& list, Op op, Dice& dice) {
  const auto found = Where(list, [op](const auto& i) { return i.op == op; });
  return found.empty() ? -1 : Pick(found, dice);
}

// Moves an instruction so that it stands before `to`, or right behind it.
inline void Move(Instructions& list, int32_t from, int32_t to) {
  const Instruction moved = list[from];
  list.erase(list.begin() + from);
  list.insert(list.begin() + to, moved);
}

template <Op op>
Result Drop(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at = PickOp(list, op, dice);
  if (at < 0) return std::nullopt;
  const std::string name = NameOf(list[at]);
  list.erase(list.begin() + at);
  return Damaged{{name}};
}

template <Op op>
Result Double(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at = PickOp(list, op, dice);
  if (at < 0) return std::nullopt;
  const Instruction copy = list[at];
  const int32_t to = dice.Between(at + 1, static_cast<int32_t>(list.size()));
  list.insert(list.begin() + to, copy);
  return Damaged{{NameOf(copy)}};
}

// Puts some `later` before the last instruction that it must follow.
template <typename Precedes>
Result MoveUp(Ranks& ranks, Dice& dice, Op later, const Precedes& precedes) {
  const int32_t rank = dice.Below(static_cast<int32_t>(ranks.size()));
  Instructions& list = ranks[rank].instructions;
  const int32_t from = PickOp(list, later, dice);
  if (from < 0) return std::nullopt;
  const Instruction moved = list[from];
  const auto before = Where(
      list, [&](const auto& i) { return precedes(ranks[rank], i, moved); });
  if (before.empty() || before.back() >= from) return std::nullopt;
  Move(list, from, dice.Between(0, before.back()));
  return Damaged{{NameOf(moved)}};
}

// What the later of two instructions has in common with the earlier one.
using Same = bool (*)(const Instruction& earlier, const Instruction& later);
inline bool Any(const Instruction&, const Instruction&) { return true; }
inline bool SameLayer(const Instruction& a, const Instruction& b) {
  return a.layer == b.layer;
}
inline bool SameSlab(const Instruction& a, const Instruction& b) {
  return a.slab == b.slab;
}
inline bool SameMicroBatch(const Instruction& a, const Instruction& b) {
  return a.micro_batch == b.micro_batch;
}
inline bool SameVisit(const Instruction& a, const Instruction& b) {
  return SameLayer(a, b) && SameMicroBatch(a, b);
}
inline bool NextLayer(const Instruction& a, const Instruction& b) {
  return a.layer + 1 == b.layer && SameMicroBatch(a, b);
}

// Some `later` before the last `earlier` of the same.
template <Op later, Op earlier, Same same = Any>
Result Before(Ranks& ranks, Dice& dice) {
  return MoveUp(ranks, dice, later,
                [](const Program&, const Instruction& i, const auto& moved) {
                  return i.op == earlier && same(i, moved);
                });
}

// Some `earlier` behind the first of those that `follows(i, earlier)`.
template <typename Follows>
Result MoveDown(Ranks& ranks, Dice& dice, Op earlier, const Follows& follows) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t from = PickOp(list, earlier, dice);
  if (from < 0) return std::nullopt;
  const Instruction moved = list[from];
  const auto behind =
      Where(list, [&](const Instruction& i) { return follows(i, moved); });
  if (behind.empty()) return std::nullopt;
  Move(list, from,
       dice.Between(behind.front(), static_cast<int32_t>(list.size()) - 1));
  return Damaged{{NameOf(moved)}};
}

inline Result CollectiveInAnotherLane(Ranks& ranks, Dice& dice) {
  if (ranks.size() < 2) return std::nullopt;
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  Instructions& list = ranks[rank].instructions;
  const auto found = Where(list, [](const auto& i) {
    return i.lane == Lane::kNetwork || i.op == Op::kNorm || i.op == Op::kSum;
  });
  Instruction& i = list[Pick(found, dice)];
  i.lane = static_cast<Lane>(
      (static_cast<int>(i.lane) + dice.Between(1, kLanes - 1)) % kLanes);
  return Damaged{{NameOf(i)}};
}

// Parts of Damages, in a file of their own.
std::vector<Damage> DamagesOfOtherPasses();
std::vector<Damage> DamagesOfPipelines();
std::vector<Damage> DamagesOfCopies();
std::vector<Damage> DamagesOfShards();
std::vector<Damage> DamagesOfStores();
std::vector<Damage> DamagesOfVisits();

}  // namespace delink::step_test
