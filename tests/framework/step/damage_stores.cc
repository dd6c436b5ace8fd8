// Ways to break programs some of whose slots go to the host.
#include <cstdint>

#include "tests/framework/step/damage.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

bool BeginsBackward(const Instruction& i) {
  return i.op == Op::kBackward || i.op == Op::kBackwardInput;
}

Result LoadBehindItsBackward(Ranks& ranks, Dice& dice) {
  return MoveDown(ranks, dice, Op::kLoadSlot,
                  [](const auto& i, const auto& load) {
                    return BeginsBackward(i) && SameVisit(i, load);
                  });
}

// Nobody loads it any more.
Result StoreBehindItsBackward(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at = PickOp(list, Op::kLoadSlot, dice);
  if (at < 0) return std::nullopt;
  Instruction store = list[at];
  list.erase(list.begin() + at);
  store.op = Op::kStoreSlot;
  const auto from = Where(list, [&](const Instruction& i) {
    return i.op == store.op && SameVisit(i, store);
  });
  const auto backward = Where(list, [&](const Instruction& i) {
    return BeginsBackward(i) && SameVisit(i, store);
  });
  Move(list, from.front(),
       dice.Between(backward.front(), static_cast<int32_t>(list.size()) - 1));
  return Damaged{{NameOf(store)}};
}

// The prologue's and the epilogue's stay.
Result StoreOfAnEnd(Ranks& ranks, Dice& dice) {
  Instructions& list = AnyRank(ranks, dice);
  const int32_t at =
      PickOp(list, dice.Coin() ? Op::kStoreSlot : Op::kLoadSlot, dice);
  if (at < 0) return std::nullopt;
  list[at].layer = dice.Coin() ? 0 : ranks.front().shape.layers - 1;
  return Damaged{{NameOf(list[at])}};
}

}  // namespace

std::vector<Damage> DamagesOfStores() {
  std::vector<Damage> all = {
      {"store dropped", PassKind::kStep, Drop<Op::kStoreSlot>},
      {"load dropped", PassKind::kStep, Drop<Op::kLoadSlot>},
      {"load of a probe dropped", PassKind::kProbe, Drop<Op::kLoadSlot>},
      {"store doubled", PassKind::kStep, Double<Op::kStoreSlot>},
      {"load doubled", PassKind::kStep, Double<Op::kLoadSlot>},
      {"store before its forward", PassKind::kStep,
       Before<Op::kStoreSlot, Op::kForward, SameVisit>},
      {"load before its store", PassKind::kStep,
       Before<Op::kLoadSlot, Op::kStoreSlot, SameVisit>},
      {"backward before its load", PassKind::kStep,
       Before<Op::kBackward, Op::kLoadSlot, SameVisit>},
      {"load behind its backward", PassKind::kStep, LoadBehindItsBackward},
      {"store behind its backward", PassKind::kStep, StoreBehindItsBackward},
      {"store of a layer at an end", PassKind::kStep, StoreOfAnEnd},
  };
  std::vector<Damage> of_pipelines = {
      {"load of a pipeline dropped", PassKind::kStep, Drop<Op::kLoadSlot>},
      {"load behind its halves", PassKind::kStep, LoadBehindItsBackward},
  };
  for (Damage& damage : of_pipelines) damage.pipeline = true;
  all.insert(all.end(), of_pipelines.begin(), of_pipelines.end());
  for (Damage& damage : all) damage.stores = true;
  return all;
}

}  // namespace delink::step_test
