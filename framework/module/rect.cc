#include "framework/module/rect.h"

#include <algorithm>

#include "framework/base/check.h"

namespace delink {

Rect WholeOf(const Shape& shape) {
  const int64_t columns = shape.rank() < 2 ? 1 : shape[shape.rank() - 1];
  const int64_t rows = columns == 0 ? 0 : shape.elements() / columns;
  return {.rows = rows, .columns = columns};
}

Rect Overlap(const Rect& a, const Rect& b) {
  Rect both{.row = std::max(a.row, b.row),
            .column = std::max(a.column, b.column)};
  both.rows =
      std::max<int64_t>(0, std::min(a.row + a.rows, b.row + b.rows) - both.row);
  both.columns = std::max<int64_t>(
      0, std::min(a.column + a.columns, b.column + b.columns) - both.column);
  return both;
}

std::vector<Rect> Without(const Rect& rect, const Rect& hole) {
  const Rect cut = Overlap(rect, hole);
  if (rect.elements() == 0) return {};
  if (cut.elements() == 0) return {rect};
  const int64_t below = cut.row + cut.rows;
  const int64_t right = cut.column + cut.columns;
  const Rect around[] = {
      {rect.row, cut.row - rect.row, rect.column, rect.columns},
      {cut.row, cut.rows, rect.column, cut.column - rect.column},
      {cut.row, cut.rows, right, rect.column + rect.columns - right},
      {below, rect.row + rect.rows - below, rect.column, rect.columns}};
  std::vector<Rect> rest;
  for (const Rect& piece : around) {
    if (piece.elements() > 0) rest.push_back(piece);
  }
  return rest;
}

std::vector<Rect> Cut(const Rect& rect, Range range) {
  DELINK_CHECK(range.begin >= 0 && range.end <= rect.elements());
  std::vector<Rect> pieces;
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t row = at / rect.columns;
    const int64_t column = at % rect.columns;
    const int64_t left = range.end - at;
    Rect piece{.row = rect.row + row,
               .rows = 1,
               .column = rect.column + column,
               .columns = std::min(left, rect.columns - column)};
    if (column == 0 && left >= rect.columns) piece.rows = left / rect.columns;
    at += piece.elements();
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace delink
