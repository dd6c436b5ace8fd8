#include "framework/module/cut_rects.h"

#include "framework/base/check.h"
#include "framework/module/even_piece.h"

namespace delink {

std::vector<Stack> StacksOf(const ParamSpec& spec) {
  const Entries entries = EntriesOf(spec);
  const bool columns = spec.split == Split::kIn || spec.vectors;
  const int64_t all = columns ? entries.columns : entries.rows;
  if (spec.split == Split::kIn || spec.stacked.empty()) return {{.count = all}};
  std::vector<Stack> stacks;
  int64_t first = 0;
  for (const int64_t count : spec.stacked) {
    stacks.push_back({first, count});
    first += count;
  }
  DELINK_CHECK_EQ(first, all) << "stacked rows are all of a parameter's";
  return stacks;
}

int PiecesOf(const ParamSpec& spec, int64_t count, int ranks) {
  if (spec.split == Split::kNone) return 1;
  if (spec.unit == 1 || ranks == 1) return ranks;
  const int64_t units = count / spec.unit;
  DELINK_CHECK_EQ(units * spec.unit, count) << "a unit is cut";
  if (units % ranks == 0) return ranks;
  DELINK_CHECK(spec.split == Split::kOut && units > 0 && ranks % units == 0)
      << units << " units over " << ranks << " ranks";
  return static_cast<int>(units);
}

std::set<AxisCut> CutsOf(const ParamSpec& spec, const Mesh& mesh) {
  std::set<AxisCut> cuts;
  const auto add = [&cuts](Axis axis, int pieces) {
    cuts.insert(pieces == 1 ? AxisCut{} : AxisCut{axis, pieces});
  };
  if (spec.split == Split::kExpert) {
    add(Axis::kExpert, mesh.expert);
    return cuts;
  }
  for (const Stack& stack : StacksOf(spec)) {
    add(Axis::kTensor, PiecesOf(spec, stack.count, mesh.tensor));
  }
  return cuts;
}

std::vector<Rect> RectsOf(const ParamSpec& spec, const Mesh& mesh, AxisCut cut,
                          int i) {
  Rect whole = WholeOf(spec.shape);
  if (spec.split == Split::kExpert) {
    DELINK_CHECK_EQ(spec.shape[0] % cut.pieces, 0);
    whole.rows /= cut.pieces;
    whole.row = i * whole.rows;
    return {whole};
  }
  if (spec.split == Split::kNone || mesh.tensor == 1) return {whole};
  const Entries entries = EntriesOf(spec);
  const bool by_columns = spec.split == Split::kIn;
  std::vector<Rect> rects;
  for (int64_t e = 0; e < (by_columns ? 1 : entries.count); ++e) {
    for (const Stack& stack : StacksOf(spec)) {
      if (PiecesOf(spec, stack.count, mesh.tensor) != cut.pieces) continue;
      const Range units = EvenPiece(stack.count / spec.unit, i, cut.pieces);
      const int64_t first = stack.first + units.begin * spec.unit;
      const int64_t count = units.size() * spec.unit;
      Rect rect = whole;
      if (!by_columns) {
        rect.row = e * entries.rows;
        rect.rows = entries.rows;
      }
      if (by_columns || spec.vectors) {
        rect.column = first;
        rect.columns = count;
      } else {
        rect.row += first;
        rect.rows = count;
      }
      if (rect.elements() > 0 || by_columns) rects.push_back(rect);
    }
  }
  return rects;
}

ColumnCut ColumnsAt(const ParamSpec& spec, int place, int ranks) {
  DELINK_CHECK(spec.split == Split::kOut);
  ColumnCut cut;
  for (const bool rest : {false, true}) {
    for (const Stack& stack : StacksOf(spec)) {
      const int pieces = PiecesOf(spec, stack.count, ranks);
      if ((pieces < ranks) != rest) continue;
      const Range units =
          EvenPiece(stack.count / spec.unit, place * pieces / ranks, pieces);
      cut.pieces.push_back({.matrix = stack.first,
                            .of = stack.count,
                            .first = units.begin * spec.unit,
                            .count = units.size() * spec.unit});
    }
  }
  return cut;
}

}  // namespace delink
