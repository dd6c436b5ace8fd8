// Damage to what ranks exchange in the middle of visits.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/step/proof/validator.h"
#include "tests/framework/step/damage_tools.h"

namespace delink::step_test {
namespace {

using Exchanges = std::vector<VisitExchange>;

// A list of at least `count` exchanges on some rank but the first; its name.
struct Found {
  Exchanges* list = nullptr;
  std::string layer;
};
Found Draw(Ranks& ranks, Dice& dice, size_t count) {
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  ProgramShape& shape = ranks[rank].shape;
  for (int tries = 0; tries < 50; ++tries) {
    const int32_t layer = dice.Below(shape.layers);
    Exchanges& list = shape.exchanges[layer][dice.Below(kPhases)];
    if (list.size() < count) continue;
    return {&list, "layer " + std::to_string(layer) + ", "};
  }
  return {};
}

Result ExchangeMissing(Ranks& ranks, Dice& dice) {
  const auto [list, layer] = Draw(ranks, dice, 1);
  if (list == nullptr) return std::nullopt;
  list->erase(list->begin() + dice.Below(static_cast<int32_t>(list->size())));
  return Damaged{{layer}};
}

Result ExchangesInAnotherOrder(Ranks& ranks, Dice& dice) {
  const auto [list, layer] = Draw(ranks, dice, 2);
  if (list == nullptr) return std::nullopt;
  const int32_t at = dice.Between(1, static_cast<int32_t>(list->size()) - 1);
  if ((*list)[at - 1] == (*list)[at]) return std::nullopt;
  std::swap((*list)[at - 1], (*list)[at]);
  return Damaged{{layer}};
}

Result ExchangeOfAnotherSize(Ranks& ranks, Dice& dice) {
  const auto [list, layer] = Draw(ranks, dice, 1);
  if (list == nullptr) return std::nullopt;
  (*list)[dice.Below(static_cast<int32_t>(list->size()))].bytes += 8;
  return Damaged{{layer}};
}

Result ExchangeOverTheOtherAxis(Ranks& ranks, Dice& dice) {
  if (ranks[0].shape.tensor == 1 || ranks[0].shape.context == 1) {
    return std::nullopt;
  }
  const auto [list, layer] = Draw(ranks, dice, 1);
  if (list == nullptr) return std::nullopt;
  Axis& axis = (*list)[dice.Below(static_cast<int32_t>(list->size()))].axis;
  axis = axis == Axis::kTensor ? Axis::kContext : Axis::kTensor;
  return Damaged{{layer}};
}

// Whether what it does for certain exchanges something over the axis.
bool MeetsOver(const Program& program, const Instruction& i, Axis axis) {
  const Phase phase = i.op == Op::kForward          ? Phase::kRecord
                      : i.op == Op::kBackwardInput  ? Phase::kBackwardInput
                      : i.op == Op::kBackwardWeight ? Phase::kBackwardWeight
                                                    : Phase::kBackward;
  const Exchanges& list =
      program.shape.exchanges[i.layer][static_cast<size_t>(phase)];
  return std::any_of(list.begin(), list.end(),
                     [axis](const auto& e) { return e.axis == axis; });
}

// Two visits of different micro-batches, which are right either way, change
// places on one of the ranks that work on them together.
Result VisitsInAnotherOrder(Ranks& ranks, Dice& dice) {
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  Program& program = ranks[rank];
  Instructions& list = program.instructions;
  std::vector<int32_t> found;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    const Instruction &a = list[i], &b = list[i + 1];
    if (!IsVisit(a) || !IsVisit(b) || a.micro_batch == b.micro_batch) continue;
    if (a.layer == b.layer && a.op != Op::kForward) continue;
    if (a.lane != b.lane) continue;
    for (const Axis axis : {Axis::kTensor, Axis::kContext}) {
      if (MeetsOver(program, a, axis) && MeetsOver(program, b, axis)) {
        found.push_back(static_cast<int32_t>(i));
      }
    }
  }
  if (found.empty()) return std::nullopt;
  const int32_t at = Pick(found, dice);
  std::swap(list[at], list[at + 1]);
  if (!ValidateProgram(program).ok()) return std::nullopt;
  return Damaged{{NameOf(list[at]), NameOf(list[at + 1])}};
}

Result UpdateExchangeMissing(Ranks& ranks, Dice& dice) {
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  auto& by_slab = ranks[rank].shape.update_exchanges;
  if (by_slab.empty()) return std::nullopt;
  const int32_t slab = dice.Below(static_cast<int32_t>(by_slab.size()));
  if (by_slab[slab].empty()) return std::nullopt;
  by_slab[slab].pop_back();
  return Damaged{{"slab " + std::to_string(slab) + ", update"}};
}

// Two updates that exchange, and are right either way, change places.
Result UpdatesInAnotherOrder(Ranks& ranks, Dice& dice) {
  const int32_t rank = dice.Between(1, static_cast<int32_t>(ranks.size()) - 1);
  Program& program = ranks[rank];
  Instructions& list = program.instructions;
  std::vector<int32_t> found;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    const Instruction &a = list[i], &b = list[i + 1];
    if (a.op != Op::kUpdate || b.op != Op::kUpdate) continue;
    const auto& by_slab = program.shape.update_exchanges;
    if (by_slab.empty() || by_slab[a.slab].empty() || by_slab[b.slab].empty()) {
      continue;
    }
    found.push_back(static_cast<int32_t>(i));
  }
  if (found.empty()) return std::nullopt;
  const int32_t at = Pick(found, dice);
  std::swap(list[at], list[at + 1]);
  if (!ValidateProgram(program).ok()) return std::nullopt;
  return Damaged{{NameOf(list[at]), NameOf(list[at + 1])}};
}

Result AnotherGroup(Ranks& ranks, Dice& dice) {
  ProgramShape& shape =
      ranks[dice.Between(1, static_cast<int32_t>(ranks.size()) - 1)].shape;
  std::swap(shape.tensor, shape.context);
  if (shape.tensor == shape.context) return std::nullopt;
  shape.slab_cuts.clear();
  return Damaged{{"program shape"}};
}

}  // namespace

std::vector<Damage> DamagesOfVisits() {
  std::vector<Damage> all;
  for (const bool pipeline : {false, true}) {
    const std::vector<Damage> of = {
        {"exchange missing on a rank", PassKind::kStep, ExchangeMissing},
        {"exchanges in another order", PassKind::kStep,
         ExchangesInAnotherOrder},
        {"exchange of another size", PassKind::kStep, ExchangeOfAnotherSize},
        {"exchange over the other axis", PassKind::kStep,
         ExchangeOverTheOtherAxis},
        {"visits in another order on a rank", PassKind::kStep,
         VisitsInAnotherOrder},
        {"exchange of an update missing on a rank", PassKind::kStep,
         UpdateExchangeMissing},
        {"updates in another order on a rank", PassKind::kStep,
         UpdatesInAnotherOrder},
        {"ranks in other groups", PassKind::kStep, AnotherGroup},
    };
    for (Damage damage : of) {
      damage.pipeline = pipeline;
      damage.groups = true;
      all.push_back(damage);
    }
  }
  return all;
}

}  // namespace delink::step_test
