#include "recipes/huggingface/tensor_map.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/check.h"
#include "framework/module/rect.h"

namespace delink::huggingface {
namespace {

constexpr std::string_view kNumber = "{i}";

std::string NameOf(const std::string& pattern, int block) {
  return absl::StrReplaceAll(pattern, {{"{i}", absl::StrCat(block)}});
}

}  // namespace

bool MatchesName(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, at))) return false;
  name.remove_prefix(at);
  const auto rest = std::ranges::find_if_not(
      name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return rest != name.begin() &&
         MatchesName(pattern.substr(at + kNumber.size()),
                     std::string_view(rest, name.end()));
}

absl::StatusOr<std::vector<Piece>> PiecesOf(const Family& family,
                                            const ParamDecl& decl) {
  const int block = decl.layer - 1;  // -1 in the prologue, which has no "{i}"
  const auto rule = std::ranges::find_if(
      family.tensors,
      [&](const TensorRule& r) { return NameOf(r.ours, block) == decl.name; });
  if (rule == family.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(decl.name, ": models of the family ", family.model_type,
                     " have no such tensor"));
  }
  const Rect whole = WholeOf(decl.spec.shape);
  std::vector<int64_t> rows = {whole.rows};
  if (rule->theirs.size() > 1) rows = decl.spec.stacked;
  DELINK_CHECK_EQ(rows.size(), rule->theirs.size())
      << decl.name << ": as many tensors of " << family.model_type
      << " as it is stacked of";
  std::vector<Piece> pieces;
  int64_t row = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    Piece piece{.name = NameOf(rule->theirs[i], block),
                .row = row,
                .rows = rows[i],
                .transposed = rule->transposed,
                .rotated = i < rule->rotated};
    if (decl.spec.shape.rank() == 1) {
      piece.shape = {rows[i]};
    } else {
      piece.shape = {rows[i], whole.columns};
      if (piece.transposed) std::swap(piece.shape[0], piece.shape[1]);
    }
    row += rows[i];
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace delink::huggingface
