#include "tests/framework/step/damage.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

Result BackwardBeforeTheLayerBehind(Ranks& ranks, Dice& dice) {
  return MoveUp(ranks, dice, Op::kBackward,
                [](const Program&, const Instruction& i, const auto& moved) {
                  return (i.op == Op::kBackward || i.op == Op::kLoss) &&
                         i.layer == moved.layer + 1 &&
                         i.micro_batch == moved.micro_batch;
                });
}

Result ReduceBeforeAContribution(Ranks& ranks, Dice& dice) {
  return MoveUp(
      ranks, dice, Op::kReduce,
      [](const Program& program, const Instruction& i, const auto& moved) {
        if (i.op != Op::kBackward && i.op != Op::kLoss) return false;
        const auto& slabs = program.shape.slabs_of_layer[i.layer];
        return std::find(slabs.begin(), slabs.end(), moved.slab) != slabs.end();
      });
}

// The visits that read a slab's weights.
std::vector<int32_t> UsesOf(const Program& program, int32_t slab) {
  return Where(program.instructions, [&](const Instruction& i) {
    if (i.layer < 0) return false;
    const auto& slabs = program.shape.slabs_of_layer[i.layer];
    return std::find(slabs.begin(), slabs.end(), slab) != slabs.end();
  });
}

// Between the first use and the update: before the first use it would be right.
Result GatherBeforeUpdate(Ranks& ranks, Dice& dice) {
  Program& program = ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
  Instructions& list = program.instructions;
  const int32_t from = PickOp(list, Op::kGather, dice);
  if (from < 0) return std::nullopt;
  const Instruction gather = list[from];
  const auto update = Where(list, [&](const auto& i) {
    return i.op == Op::kUpdate && i.slab == gather.slab;
  });
  const int32_t first = UsesOf(program, gather.slab).front();
  Move(list, from, dice.Between(first + 1, update.front()));
  return Damaged{{NameOf(gather)}};
}

Result FlipRecompute(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at =
      PickOp(list, dice.Coin() ? Op::kForward : Op::kBackward, dice);
  list[at].flags ^= kRecompute;
  return Damaged{{NameOf(list[at])}};
}

// In forward and backward alike.
Result PrologueRecomputes(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  for (Instruction& i : list) {
    if (i.layer == 0) i.flags ^= kRecompute;
  }
  return Damaged{{"the prologue has no boundary"}};
}

Result FlipForwardOnly(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const auto found = Where(list, [](const Instruction& i) {
    return (i.op == Op::kForward && i.layer > 0) || i.op == Op::kLoss;
  });
  Instruction& i = list[Pick(found, dice)];
  i.flags = kForwardOnly;
  return Damaged{{NameOf(i)}};
}

// Two backwards of a layer, or two losses, change places.
Result DescendingMicroBatches(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t first =
      PickOp(list, dice.Below(4) == 0 ? Op::kLoss : Op::kBackward, dice);
  const Instruction a = list[first];
  const auto later = Where(list, [&](const Instruction& i) {
    return i.op == a.op && i.layer == a.layer && i.micro_batch > a.micro_batch;
  });
  if (later.empty()) return std::nullopt;
  Instruction& b = list[Pick(later, dice)];
  const std::string name = NameOf(b);
  std::swap(list[first], b);
  return Damaged{{name}};
}

Result WrongMicroBatch(Ranks& ranks, Dice& dice) {
  const int32_t count = ranks[0].shape.micro_batches;
  if (count < 2) return std::nullopt;
  Instructions& list = AnyRank(ranks, dice);
  const auto visits = Where(list, [](const auto& i) { return i.layer >= 0; });
  Instruction& i = list[Pick(visits, dice)];
  const std::string was = NameOf(i);
  i.micro_batch = (i.micro_batch + dice.Between(1, count - 1)) % count;
  return Damaged{{was, NameOf(i)}};
}

Result OutOfRange(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  Instruction& i = list[dice.Below(static_cast<int32_t>(list.size()))];
  const int32_t bad = dice.Coin() ? 1000 : -2;
  switch (dice.Below(3)) {
    case 0:
      i.layer = bad;
      break;
    case 1:
      i.slab = bad;
      break;
    default:
      i.micro_batch = bad;
  }
  return Damaged{{NameOf(i)}};
}

Result ForeignInstruction(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const Instruction i{
      .op = dice.Coin() ? Op::kSend : Op::kRecv, .layer = 1, .micro_batch = 0};
  list.insert(list.begin() + dice.Below(static_cast<int32_t>(list.size()) + 1),
              i);
  return Damaged{{NameOf(i)}};
}

// A release of weights that are at home.
Result ReleaseTooEarly(Ranks& ranks, Dice& dice) {
  Program& program = ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
  Instructions& list = program.instructions;
  const Instruction release{.op = Op::kRelease,
                            .slab = dice.Below(program.shape.slabs)};
  const int32_t last = UsesOf(program, release.slab).back();
  list.insert(list.begin() + dice.Between(0, last), release);
  return Damaged{{NameOf(release)}};
}

// The earlier of two collectives of one kind moves behind the later one, where
// one rank alone would be right.
template <Op op>
Result SwapBetweenRanks(Ranks& ranks, Dice& dice) {
  if (ranks.size() < 2) return std::nullopt;
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  Instructions& list = ranks[rank].instructions;
  const auto found = Where(list, [](const auto& i) { return i.op == op; });
  if (found.size() < 2) return std::nullopt;
  const int32_t a = dice.Below(static_cast<int32_t>(found.size()) - 1);
  const int32_t b = dice.Between(a + 1, static_cast<int32_t>(found.size()) - 1);
  // Every collective between the two comes one earlier on this rank.
  const Instruction first_seen = list[found[a + 1]];
  Move(list, found[a], found[b]);
  return Damaged{{"rank " + std::to_string(rank) + ": instruction " +
                  std::to_string(IndexOf(list, first_seen)) + ", " +
                  NameOf(first_seen) + ":"}};
}

Result AnotherShape(Ranks& ranks, Dice& dice) {
  if (ranks.size() < 2) return std::nullopt;
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  ProgramShape shape = ranks[rank].shape;
  ++shape.micro_batches;
  ranks[rank] = PlanStep(shape, {});
  return Damaged{{"rank " + std::to_string(rank) + ": program shape"}};
}

// Right by itself, and it meets the others where they meet.
Result AnotherKind(Ranks& ranks, Dice& dice) {
  if (ranks.size() < 2) return std::nullopt;
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  ranks[rank] = PlanGradients(ranks[rank].shape, {});
  return Damaged{{"rank " + std::to_string(rank) + ": runs "}};
}

}  // namespace

const std::vector<Damage>& Damages() {
  static const std::vector<Damage> kAll = [] {
    std::vector<Damage> all = {
        {"forward dropped", PassKind::kStep, Drop<Op::kForward>},
        {"loss dropped", PassKind::kStep, Drop<Op::kLoss>},
        {"backward dropped", PassKind::kStep, Drop<Op::kBackward>},
        {"reduce dropped", PassKind::kStep, Drop<Op::kReduce>},
        {"squares dropped", PassKind::kStep, Drop<Op::kSquares>},
        {"norm dropped", PassKind::kStep, Drop<Op::kNorm>},
        {"update dropped", PassKind::kStep, Drop<Op::kUpdate>},
        {"gather dropped", PassKind::kStep, Drop<Op::kGather>},
        {"forward doubled", PassKind::kStep, Double<Op::kForward>},
        {"loss doubled", PassKind::kStep, Double<Op::kLoss>},
        {"backward doubled", PassKind::kStep, Double<Op::kBackward>},
        {"reduce doubled", PassKind::kStep, Double<Op::kReduce>},
        {"squares doubled", PassKind::kStep, Double<Op::kSquares>},
        {"norm doubled", PassKind::kStep, Double<Op::kNorm>},
        {"update doubled", PassKind::kStep, Double<Op::kUpdate>},
        {"gather doubled", PassKind::kStep, Double<Op::kGather>},
        {"backward before loss", PassKind::kStep,
         Before<Op::kBackward, Op::kLoss, SameMicroBatch>},
        {"backward before the layer behind", PassKind::kStep,
         BackwardBeforeTheLayerBehind},
        {"loss before forward", PassKind::kStep,
         Before<Op::kLoss, Op::kForward, NextLayer>},
        {"forward before the layer before", PassKind::kStep,
         Before<Op::kForward, Op::kForward, NextLayer>},
        {"update before norm", PassKind::kStep, Before<Op::kUpdate, Op::kNorm>},
        {"norm before a reduce", PassKind::kStep,
         Before<Op::kNorm, Op::kReduce>},
        {"squares before reduce", PassKind::kStep,
         Before<Op::kSquares, Op::kReduce, SameSlab>},
        {"norm before squares", PassKind::kStep,
         Before<Op::kNorm, Op::kSquares>},
        {"reduce before a contribution", PassKind::kStep,
         ReduceBeforeAContribution},
        {"gather before update", PassKind::kStep, GatherBeforeUpdate},
        {"recompute flags differ", PassKind::kStep, FlipRecompute},
        {"the prologue recomputes", PassKind::kStep, PrologueRecomputes},
        {"forward-only flags differ", PassKind::kStep, FlipForwardOnly},
        {"micro-batches descending", PassKind::kStep, DescendingMicroBatches},
        {"wrong micro-batch", PassKind::kStep, WrongMicroBatch},
        {"field out of range", PassKind::kStep, OutOfRange},
        {"foreign instruction", PassKind::kStep, ForeignInstruction},
        {"release of what is at home", PassKind::kStep, ReleaseTooEarly},
        {"reduces swapped between ranks", PassKind::kStep,
         SwapBetweenRanks<Op::kReduce>},
        {"gathers swapped between ranks", PassKind::kStep,
         SwapBetweenRanks<Op::kGather>},
        {"collective in another lane", PassKind::kStep,
         CollectiveInAnotherLane},
        {"shapes differ between ranks", PassKind::kStep, AnotherShape},
        {"kinds differ between ranks", PassKind::kStep, AnotherKind},
    };
    for (const auto& others :
         {DamagesOfOtherPasses(), DamagesOfPipelines(), DamagesOfCopies(),
          DamagesOfShards(), DamagesOfStores(), DamagesOfVisits()}) {
      all.insert(all.end(), others.begin(), others.end());
    }
    return all;
  }();
  return kAll;
}

}  // namespace delink::step_test
