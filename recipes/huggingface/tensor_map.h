// Finds the tensors of a family that make up a tensor of ours. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/rect.h"
#include "framework/module/scope.h"
#include "recipes/huggingface/family.h"

namespace delink::huggingface {

// A tensor of theirs, or some of it: a rectangle of one of ours. That has whole
// rows, or is in one row.
struct Piece {
  std::string name;            // with the family's prefix
  std::vector<int64_t> shape;  // theirs
  Rect rect;                   // of ours
  int64_t first = 0;           // the rectangle's first value in theirs
  bool transposed = false;     // theirs is [rect.columns, rect.rows]
  bool rotated = false;        // TensorRule::rotated
};

// All pieces of a parameter of ours, in the order of its rows. Includes those
// of a link (a tied head), which a folder may lack. If theirs has several
// matrices or vectors, each is a piece. InvalidArgument: the
// family's table has no rule for it.
absl::StatusOr<std::vector<Piece>> PiecesOf(const Family& family,
                                            const ParamDecl& decl);

// Whether `name` matches `pattern`, in which "{i}" and "{e}" are any number.
bool MatchesName(std::string_view pattern, std::string_view name);

// The row of ours that is row `row` of theirs. Ours has heads of `width` that
// rotate elements 2 i and 2 i + 1 together, theirs i and i + width / 2.
inline int64_t HalvesFromPairs(int64_t row, int64_t width) {
  const int64_t head = row / width, at = row % width, half = width / 2;
  return head * width + (at < half ? 2 * at : 2 * (at - half) + 1);
}

}  // namespace delink::huggingface
