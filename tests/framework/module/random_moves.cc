#include "tests/framework/module/random_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "framework/base/at.h"

namespace delink::testing {
namespace {

// If not `cut`, each logical slab is one local slab.
Model AnyModel(Dice& dice, bool cut) {
  Model model;
  Declare(model, dice, 16, /*exact=*/cut);
  return model;
}

double DivisorOf(int64_t number) {
  return static_cast<double>(3 + 2 * (number % 5));
}

void Divide(std::span<double> values, int64_t first) {
  for (double& value : values) value /= DivisorOf(first++);
}

}  // namespace

RandomMoves::RandomMoves(Dice& dice, int most_ranks)
    : tensor_(dice.Maybe()),
      model_(AnyModel(dice, tensor_)),
      from_(AnyLayout(model_, dice, most_ranks, tensor_)),
      to_(AnyLayout(model_, dice, most_ranks, tensor_)) {
  source_.sharded = dice.Maybe();
  target_.sharded = dice.Maybe();
  target_.copies = dice.Below(4) == 0;
  if (dice.Maybe()) source_.type = target_.type = DType::kF64;
  const int form = tensor_ ? 0 : dice.Below(3);
  if (form == 1) target_.grain = int64_t{8} << dice.Below(6);
  if (form == 2) {
    source_.grid = target_.grid =
        dice.Maybe() ? StateExtent::kRows : StateExtent::kColumns;
  }
  most_ = target_.grain * dice.Between(1, 50);
  changes_ = dice.Below(3) == 0;
  std::map<const LogicalTensor*, std::vector<const LogicalTensor*>> targets;
  for (const LogicalTensor& to : to_.tensors()) {
    if (to.link.empty() && dice.Below(3) == 0) {
      targets[&AnyLike(to, dice)].push_back(&to);
    }
  }
  for (auto& [from, to] : targets) {
    moves_.push_back({.field = {Field::Kind::kState, "m"},
                      .from = from,
                      .to = std::move(to)});
    if (changes_) moves_.back().change = &Divide;
  }
}

const LogicalTensor& RandomMoves::AnyLike(const LogicalTensor& to,
                                          Dice& dice) const {
  std::vector<const LogicalTensor*> like;
  for (const LogicalTensor& from : from_.tensors()) {
    if (LocalName(from.name) == LocalName(to.name)) like.push_back(&from);
  }
  return *At(like, dice.Below(static_cast<int>(like.size())));
}

double RandomMoves::Expected(const TestSink& sink, const std::string& source,
                             const LogicalTensor& to, int64_t number) const {
  if (!changes_) return ValueOf(source, number);
  const double part = sink.Kept(source, to, number) / DivisorOf(number);
  if (target_.type == DType::kF64) return part;
  return static_cast<double>(static_cast<float>(part));
}

void RandomMoves::Check(TestSink& sink) const {
  for (const Move& move : moves_) {
    for (const LogicalTensor* to : move.to) {
      sink.Check(*to, [&](int64_t number) {
        return Expected(sink, OwnerOf(*move.from), *to, number);
      });
    }
  }
  EXPECT_EQ(sink.besides(), 0);
  EXPECT_TRUE(!changes_ || sink.copied() == 0);
}

int64_t RandomMoves::LeastToCross() const {
  const TestSource source = SourceOf(0);
  const TestSink sink = SinkOf(0);
  int64_t least = 0;
  for (const Move& move : moves_) {
    std::map<int, std::vector<char>> missing;  // by rank
    const Rect whole = WholeOf(source.ShapeOf(*move.from));
    const auto mark = [&](const Extent& extent, char is_missing) {
      std::vector<char>& values = missing[extent.rank];
      values.resize(static_cast<size_t>(whole.elements()), 0);
      ForEachElement(extent, [&](int64_t row, int64_t column, int64_t) {
        At(values, row * whole.columns + column) = is_missing;
      });
    };
    for (const LogicalTensor* to : move.to) {
      for (const Extent& extent : sink.Wants(move.field, *to)) mark(extent, 1);
    }
    for (const Extent& extent : source.Has(move.field, *move.from)) {
      mark(extent, 0);
    }
    for (const auto& [rank, values] : missing) {
      least += std::count(values.begin(), values.end(), 1);
    }
  }
  return least * SizeOf(source_.type);
}

}  // namespace delink::testing
