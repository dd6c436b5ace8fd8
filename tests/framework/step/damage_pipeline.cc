// Ways to break pipelines.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/framework/step/damage.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

bool IsTransfer(const Instruction& i) {
  return i.op == Op::kSend || i.op == Op::kRecv;
}

// What makes what a transfer sends, or uses what it brings.
bool IsEnd(const Instruction& i, const Instruction& transfer) {
  const bool gradient = (transfer.flags & kOfGradient) != 0;
  const bool behind = (transfer.op == Op::kSend) == gradient;
  if (i.micro_batch != transfer.micro_batch) return false;
  if (i.layer != transfer.layer - (behind ? 0 : 1)) return false;
  if (gradient && i.op == Op::kBackwardInput) return true;
  return i.op == (gradient ? Op::kBackward : Op::kForward) || i.op == Op::kLoss;
}

Result SendBeforeItIsMade(Ranks& ranks, Dice& dice) {
  return MoveUp(ranks, dice, Op::kSend,
                [](const Program&, const Instruction& i, const auto& moved) {
                  return IsEnd(i, moved);
                });
}

Result RecvAfterItsUse(Ranks& ranks, Dice& dice) {
  return MoveDown(ranks, dice, Op::kRecv, IsEnd);
}

Result OfAnotherStage(Ranks& ranks, Dice& dice) {
  const int32_t rank = dice.Below(static_cast<int32_t>(ranks.size()));
  const Program& other = ranks[dice.Below(static_cast<int32_t>(ranks.size()))];
  Instructions& list = ranks[rank].instructions;
  const auto layers = Where(other.instructions, [&](const Instruction& i) {
    return i.layer >= 0 && other.stage != ranks[rank].stage;
  });
  if (layers.empty()) return std::nullopt;
  const Instruction foreign = other.instructions[Pick(layers, dice)];
  list.insert(list.begin() + dice.Below(static_cast<int32_t>(list.size()) + 1),
              foreign);
  return Damaged{{NameOf(foreign)}};
}

Result AnotherStagesProgram(Ranks& ranks, Dice& dice) {
  const int32_t rank = dice.Below(static_cast<int32_t>(ranks.size()));
  const int32_t other = dice.Below(static_cast<int32_t>(ranks.size()));
  if (ranks[rank].stage == ranks[other].stage) return std::nullopt;
  ranks[rank] = ranks[other];
  return Damaged{{"rank " + std::to_string(rank) + ": runs the program of "}};
}

Result FlipOfGradient(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  Instruction& i = list[Pick(Where(list, IsTransfer), dice)];
  i.flags ^= kOfGradient;
  return Damaged{{NameOf(i)}};
}

// Two that one rank sends to another one behind the other, or receives from it,
// change places: right by itself.
template <Op op>
Result SwapTransfers(Ranks& ranks, Dice& dice) {
  const int32_t rank = dice.Below(static_cast<int32_t>(ranks.size()));
  Instructions& list = ranks[rank].instructions;
  const int32_t at = PickOp(list, op, dice);
  if (at < 0) return std::nullopt;
  const Instruction first = list[at];
  auto later = Where(list, [&](const Instruction& i) {
    return i.op == op && i.flags == first.flags;
  });
  std::erase_if(later, [at](int32_t i) { return i <= at; });
  if (later.empty()) return std::nullopt;
  const Instruction second = list[later.front()];
  // Of one layer, so that what is used is there.
  if (second.layer != first.layer) return std::nullopt;
  if (op == Op::kSend) {
    Move(list, at, later.front());
    return Damaged{{"rank " + std::to_string(rank) + ": instruction " +
                    std::to_string(IndexOf(list, second)) + ", " +
                    ToString(second) + ": rank "}};
  }
  Move(list, later.front(), at);
  return Damaged{{"rank " + std::to_string(rank) + " receives " +
                  ToString(second) + " there"}};
}

// A whole backward beside the halves, at its place or anywhere.
Result HalvesAndTheWhole(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at = PickOp(list, Op::kBackwardInput, dice);
  if (at < 0) return std::nullopt;
  Instruction whole = list[at];
  whole.op = Op::kBackward;
  list.insert(
      list.begin() + (dice.Coin()
                          ? at
                          : dice.Below(static_cast<int32_t>(list.size()) + 1)),
      whole);
  return Damaged{{NameOf(whole)}};
}

// A second half in place of the whole.
Result HalfOfTheWhole(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const auto found = Where(list, [](const Instruction& i) {
    return i.op == Op::kBackward && i.layer > 0;
  });
  if (found.empty()) return std::nullopt;
  Instruction& i = list[Pick(found, dice)];
  i.op = Op::kBackwardWeight;
  i.flags = 0;
  return Damaged{{NameOf(i)}};
}

// Second halves of a layer change places.
Result DescendingWeights(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t first = PickOp(list, Op::kBackwardWeight, dice);
  if (first < 0) return std::nullopt;
  const Instruction a = list[first];
  const auto later = Where(list, [&](const Instruction& i) {
    return i.op == a.op && i.layer == a.layer && i.micro_batch > a.micro_batch;
  });
  if (later.empty()) return std::nullopt;
  Instruction& b = list[Pick(later, dice)];
  const std::string name = NameOf(a), other = NameOf(b);
  std::swap(list[first], b);
  return Damaged{{name, other}};
}

Result ReduceBeforeASecondHalf(Ranks& ranks, Dice& dice) {
  return MoveUp(
      ranks, dice, Op::kReduce,
      [](const Program& program, const Instruction& i, const auto& moved) {
        if (i.op != Op::kBackwardWeight) return false;
        const auto& slabs = program.shape.slabs_of_layer[i.layer];
        return std::find(slabs.begin(), slabs.end(), moved.slab) != slabs.end();
      });
}

Result RecomputeOfAHalf(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at = PickOp(
      list, dice.Coin() ? Op::kBackwardInput : Op::kBackwardWeight, dice);
  if (at < 0) return std::nullopt;
  list[at].flags ^= kRecompute;
  return Damaged{{NameOf(list[at])}};
}

Result HalvesOfTheEnds(Ranks& ranks, Dice& dice) {
  const int32_t last = ranks[0].shape.layers - 1;
  Instructions& list = AnyRank(ranks, dice);
  const auto found = Where(list, [&](const Instruction& i) {
    return i.op == Op::kLoss || (i.op == Op::kBackward && i.layer == 0);
  });
  if (found.empty()) return std::nullopt;
  Instruction& i = list[Pick(found, dice)];
  i.op = dice.Coin() ? Op::kBackwardInput : Op::kBackwardWeight;
  return Damaged{{NameOf(i) + ": layer " + std::to_string(i.layer) +
                  " is not in [1, " + std::to_string(last - 1)}};
}

// Of ranks of one stage, other than those of data place 0.
Result SwapReduces(Ranks& ranks, Dice& dice) {
  const int32_t places = ranks[0].shape.ranks;
  const int32_t rank = dice.Below(static_cast<int32_t>(ranks.size()));
  if (rank % places == 0) return std::nullopt;
  Instructions& list = ranks[rank].instructions;
  const auto found =
      Where(list, [](const auto& i) { return i.op == Op::kReduce; });
  if (found.size() < 2) return std::nullopt;
  Move(list, found[0], found[1]);
  const std::string message = "collectives of a lane must have one order";
  return Damaged{{message}};
}

// Of forwards-first programs: stage 0 receives the gradient of a before it
// sends b, in one lane, but stage 1 goes backward when it has b.
Result CycleBetweenLanes(Ranks& ranks, Dice& dice) {
  const ProgramShape& shape = ranks[0].shape;
  // Of several chunks it would go ahead of other gradients as well.
  if (ChunkOf(shape, shape.layers - 1) >= shape.stages) return std::nullopt;
  const int32_t rank = dice.Below(shape.ranks);
  Instructions& list = ranks[rank].instructions;
  const auto find = [](const Instructions& of, Op op, int32_t layer,
                       int32_t micro_batch) {
    const auto found = Where(of, [&](const Instruction& i) {
      return i.op == op && i.layer == layer && i.micro_batch == micro_batch;
    });
    return found.empty() ? -1 : found.front();
  };
  const Instructions& next = ranks[rank + shape.ranks].instructions;
  int32_t layer = 0;
  while (shape.chunk_of_layer[layer] == 0) ++layer;
  const int32_t forward = find(next, Op::kForward, layer, 1);
  const int32_t backward = find(next, Op::kBackward, layer, 0);
  if (forward < 0 || backward < forward) return std::nullopt;
  const int32_t from = find(list, Op::kRecv, layer, 0);
  list[from].lane = Lane::kToNext;
  const int32_t to = find(list, Op::kSend, layer, 1);
  if (from > to) Move(list, from, to);
  return Damaged{{"waits for ever"}};
}

}  // namespace

std::vector<Damage> DamagesOfPipelines() {
  std::vector<Damage> all = {
      {"send dropped", PassKind::kStep, Drop<Op::kSend>},
      {"receive dropped", PassKind::kStep, Drop<Op::kRecv>},
      {"send of an evaluation dropped", PassKind::kEvaluation, Drop<Op::kSend>},
      {"send doubled", PassKind::kStep, Double<Op::kSend>},
      {"receive doubled", PassKind::kStep, Double<Op::kRecv>},
      {"send before it is made", PassKind::kStep, SendBeforeItIsMade},
      {"receive after its use", PassKind::kStep, RecvAfterItsUse},
      {"of another stage", PassKind::kStep, OfAnotherStage},
      {"another stage's program", PassKind::kStep, AnotherStagesProgram},
      {"gradient for input", PassKind::kStep, FlipOfGradient},
      {"sends swapped", PassKind::kStep, SwapTransfers<Op::kSend>},
      {"receives swapped", PassKind::kStep, SwapTransfers<Op::kRecv>},
      {"reduces swapped in a stage", PassKind::kStep, SwapReduces},
      {"a cycle between lanes", PassKind::kStep, CycleBetweenLanes},
      {"first half dropped", PassKind::kStep, Drop<Op::kBackwardInput>},
      {"second half dropped", PassKind::kStep, Drop<Op::kBackwardWeight>},
      {"first half doubled", PassKind::kStep, Double<Op::kBackwardInput>},
      {"second half doubled", PassKind::kStep, Double<Op::kBackwardWeight>},
      {"second half before the first", PassKind::kStep,
       Before<Op::kBackwardWeight, Op::kBackwardInput, SameVisit>},
      {"halves and the whole", PassKind::kStep, HalvesAndTheWhole},
      {"a second half of a whole", PassKind::kStep, HalfOfTheWhole},
      {"second halves descending", PassKind::kStep, DescendingWeights},
      {"reduce before a second half", PassKind::kStep, ReduceBeforeASecondHalf},
      {"recompute flags of a half differ", PassKind::kStep, RecomputeOfAHalf},
      {"halves of prologue and loss", PassKind::kStep, HalvesOfTheEnds},
  };
  for (Damage& damage : all) damage.pipeline = true;
  return all;
}

}  // namespace delink::step_test
