#include "recipes/huggingface/tensor_map.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/check.h"

namespace delink::huggingface {
namespace {

std::string NameOf(const std::string& pattern, int64_t block, int64_t entry) {
  return absl::StrReplaceAll(
      pattern, {{"{i}", absl::StrCat(block)}, {"{e}", absl::StrCat(entry)}});
}

}  // namespace

bool MatchesName(std::string_view pattern, std::string_view name) {
  const size_t at = std::min(pattern.find("{i}"), pattern.find("{e}"));
  if (at == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, at))) return false;
  name.remove_prefix(at);
  const auto rest = std::ranges::find_if_not(
      name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return rest != name.begin() &&
         MatchesName(pattern.substr(at + 3),
                     std::string_view(rest, name.end()));
}

absl::StatusOr<std::vector<Piece>> PiecesOf(const Family& family,
                                            const ParamDecl& decl) {
  const int block = decl.layer - 1;  // -1 in the prologue, which has no "{i}"
  const auto rule =
      std::ranges::find_if(family.tensors, [&](const TensorRule& r) {
        return NameOf(r.ours, block, 0) == decl.name;
      });
  if (rule == family.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(decl.name, ": models of the family ", family.model_type,
                     " have no such tensor"));
  }
  const ParamSpec& spec = decl.spec;
  const Entries entries = EntriesOf(spec);
  std::vector<int64_t> stacked = {spec.vectors ? entries.columns
                                               : entries.rows};
  if (rule->theirs.size() > 1) stacked = spec.stacked;
  DELINK_CHECK_EQ(stacked.size(), rule->theirs.size())
      << decl.name << ": as many tensors of " << family.model_type
      << " as it is stacked of";
  std::vector<Piece> pieces;
  for (int64_t e = 0; e < entries.count; ++e) {
    Rect rect{.row = e * entries.rows,
              .rows = entries.rows,
              .columns = entries.columns};
    for (size_t i = 0; i < stacked.size(); ++i) {
      (spec.vectors ? rect.columns : rect.rows) = stacked[i];
      const std::string& theirs = rule->theirs[i];
      Piece piece{.name = NameOf(theirs, block, e),
                  .shape = {stacked[i]},
                  .rect = rect,
                  .transposed = rule->transposed,
                  .rotated = i < rule->rotated};
      if (!spec.is_vector()) {
        piece.shape.insert(
            piece.transposed ? piece.shape.begin() : piece.shape.end(),
            entries.columns);
      }
      if ((spec.vectors || spec.shape.rank() > 2) &&
          !absl::StrContains(theirs, "{e}")) {
        piece.shape.insert(piece.shape.begin(), entries.count);
        piece.first = e * rect.elements();
      }
      pieces.push_back(std::move(piece));
      (spec.vectors ? rect.column : rect.row) += stacked[i];
    }
  }
  return pieces;
}

}  // namespace delink::huggingface
