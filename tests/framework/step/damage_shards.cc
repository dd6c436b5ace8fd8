// Ways to break programs whose weights are sharded.
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/proof/validator.h"
#include "tests/framework/step/cells.h"
#include "tests/framework/step/damage.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

std::vector<int32_t> GathersOf(const Program& program) {
  return Where(program.instructions, [&](const Instruction& i) {
    return GathersAt(program.shape, i);
  });
}

// Whatever is said of whole weights of the slab, or that they have no room.
Damaged OfWholeWeights(int32_t slab) {
  const std::string of = "(" + std::to_string(slab) + ")";
  return {{"Fetch" + of, "Release" + of, "no copy is free"}};
}

Result GatherDropped(Ranks& ranks, Dice& dice) {
  Program& program = ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
  const std::vector<int32_t> gathers = GathersOf(program);
  if (gathers.empty()) return std::nullopt;
  const int32_t at = Pick(gathers, dice);
  const int32_t slab = program.instructions[at].slab;
  program.instructions.erase(program.instructions.begin() + at);
  return OfWholeWeights(slab);
}

Result GatherDoubled(Ranks& ranks, Dice& dice) {
  Program& program = ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
  Instructions& list = program.instructions;
  const std::vector<int32_t> gathers = GathersOf(program);
  if (gathers.empty()) return std::nullopt;
  const int32_t at = Pick(gathers, dice);
  const Instruction copy = list[at];
  const int32_t to = dice.Between(at + 1, static_cast<int32_t>(list.size()));
  list.insert(list.begin() + to, copy);
  return OfWholeWeights(copy.slab);
}

// Of the whole weights, behind the update of the shard.
Result ReleaseBehindTheUpdate(Ranks& ranks, Dice& dice) {
  Program& program = ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
  Instructions& list = program.instructions;
  const std::vector<int32_t> gathers = GathersOf(program);
  if (gathers.empty()) return std::nullopt;
  const int32_t slab = list[Pick(gathers, dice)].slab;
  const auto releases = Where(list, [&](const Instruction& i) {
    return i.op == Op::kRelease && i.slab == slab &&
           PlaneSetOf(i) == PlaneSet::kWeight;
  });
  const auto update = Where(list, [&](const Instruction& i) {
    return i.op == Op::kUpdate && i.slab == slab;
  });
  Move(list, releases.back(),
       dice.Between(update.front(), static_cast<int32_t>(list.size()) - 1));
  return OfWholeWeights(slab);
}

// A rank other than the first, and where it gathers.
struct Place {
  int32_t rank = 0;
  std::vector<int32_t> gathers;
};
Place AnyPlace(const Ranks& ranks, Dice& dice) {
  const ProgramShape& shape = ranks[0].shape;
  if (shape.ranks < 2) return {};
  const int32_t rank = dice.Below(static_cast<int32_t>(ranks.size()));
  if (rank % shape.ranks == 0) return {};
  return {rank, GathersOf(ranks[rank])};
}

Damaged OfTheOrder() { return {{"of the gather lane is "}}; }

// Two gathers that are right either way change places on a rank.
Result GathersSwapped(Ranks& ranks, Dice& dice) {
  const auto [rank, gathers] = AnyPlace(ranks, dice);
  Program& program = ranks[rank];
  for (int32_t tries = std::ssize(gathers) < 2 ? 0 : 4; tries > 0; --tries) {
    const int32_t k = dice.Below(static_cast<int32_t>(gathers.size()) - 1);
    Program moved = program;
    Instructions& list = moved.instructions;
    Move(list, gathers[k + 1], gathers[k]);
    if (list[gathers[k]].slab == list[gathers[k] + 1].slab ||
        !ValidateProgram(moved).ok()) {
      continue;
    }
    program = std::move(moved);
    return OfTheOrder();
  }
  return std::nullopt;
}

// Right by itself, but other ranks gather once.
Result GatheredAgainOnARank(Ranks& ranks, Dice& dice) {
  const auto [rank, gathers] = AnyPlace(ranks, dice);
  if (gathers.empty()) return std::nullopt;
  Instructions& list = ranks[rank].instructions;
  const int32_t at = Pick(gathers, dice);
  const Instruction gather = list[at];
  Instruction release = gather;
  release.op = Op::kRelease;
  list.insert(list.begin() + at + 1, {release, gather});
  return OfTheOrder();
}

Result GatherInAnotherLane(Ranks& ranks, Dice& dice) {
  const auto [rank, gathers] = AnyPlace(ranks, dice);
  if (gathers.empty()) return std::nullopt;
  Instruction& i = ranks[rank].instructions[Pick(gathers, dice)];
  i.lane = static_cast<Lane>(
      (static_cast<int>(i.lane) + dice.Between(1, kLanes - 1)) % kLanes);
  return Damaged{{ToString(i)}};
}

// The shapes differ, so that some ranks copy what others gather.
Result NoShardOnARank(Ranks& ranks, Dice& dice) {
  const auto [rank, gathers] = AnyPlace(ranks, dice);
  if (gathers.empty()) return std::nullopt;
  Program& program = ranks[rank];
  program.shape.shards[program.instructions[gathers.front()].slab] = false;
  return Damaged{{"rank " + std::to_string(rank) + ": program shape"}};
}

}  // namespace

std::vector<Damage> DamagesOfShards() {
  // The ranks of a stage of a pipeline have few gathers that may change places.
  std::vector<Damage> all = {{"gathers of shards swapped", PassKind::kStep,
                              GathersSwapped, false, true}};
  for (const bool pipeline : {false, true}) {
    const std::vector<Damage> of = {
        {"gather of shards dropped", PassKind::kStep, GatherDropped},
        {"gather of an evaluation dropped", PassKind::kEvaluation,
         GatherDropped},
        {"gather of shards doubled", PassKind::kStep, GatherDoubled},
        {"release behind the update", PassKind::kStep, ReleaseBehindTheUpdate},
        {"gathered again on a rank", PassKind::kStep, GatheredAgainOnARank},
        {"gather in another lane", PassKind::kStep, GatherInAnotherLane},
        {"no shard on a rank", PassKind::kStep, NoShardOnARank},
    };
    for (Damage damage : of) {
      damage.pipeline = pipeline;
      damage.copies = true;
      all.push_back(damage);
    }
  }
  return all;
}

}  // namespace delink::step_test
