// Which tensors of a family a tensor of ours is made of, from its table. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/module/scope.h"
#include "recipes/huggingface/family.h"

namespace delink::huggingface {

// A tensor of theirs: rows [row, row + rows) of one of ours, seen as a matrix
// (framework/module/rect.h).
struct Piece {
  std::string name;            // with the family's prefix
  std::vector<int64_t> shape;  // theirs
  int64_t row = 0, rows = 0;
  bool transposed = false;  // theirs is [columns, rows]
  bool rotated = false;     // TensorRule::rotated
};

// The pieces of a parameter of ours, in the order of its rows, all of them:
// also those of a link (a tied head), which a folder need not have.
// InvalidArgument: the family's table has no place for it.
absl::StatusOr<std::vector<Piece>> PiecesOf(const Family& family,
                                            const ParamDecl& decl);

// Whether `name` is a name of `pattern`, in which "{i}" is any number.
bool MatchesName(std::string_view pattern, std::string_view name);

// For rows of heads of `width` whose elements 2 i and 2 i + 1 turn together:
// which of ours is row `row` of theirs, where i and i + width / 2 do.
inline int64_t HalvesFromPairs(int64_t row, int64_t width) {
  const int64_t head = row / width, at = row % width, half = width / 2;
  return head * width + (at < half ? 2 * at : 2 * (at - half) + 1);
}

}  // namespace delink::huggingface
