#include "framework/module/can_cut.h"

#include <algorithm>
#include <vector>

namespace delink {
namespace {

// The numbers of rows, or columns, that are cut by themselves.
std::vector<int64_t> CountsOf(const ParamSpec& spec) {
  if (spec.split == Split::kIn) return {spec.shape[spec.shape.rank() - 1]};
  if (!spec.stacked.empty()) return spec.stacked;
  return {spec.shape[0]};
}

bool CanBeCut(const ParamSpec& spec, int64_t ranks) {
  // Parameters without heads may be cut unevenly.
  if (spec.split == Split::kNone || spec.unit == 1) return true;
  const std::vector<int64_t> counts = CountsOf(spec);
  return std::all_of(counts.begin(), counts.end(), [&](int64_t count) {
    const int64_t units = count / spec.unit;
    // Several ranks may have the same rows (kOut), but not the same columns of
    // a sum (kIn).
    return units % ranks == 0 ||
           (spec.split == Split::kOut && ranks % units == 0);
  });
}

}  // namespace

const ParamDecl* CannotBeCut(const ParamRegistry& registry, int64_t ranks) {
  const auto found = std::find_if(
      registry.decls.begin(), registry.decls.end(),
      [&](const ParamDecl& decl) { return !CanBeCut(decl.spec, ranks); });
  return found == registry.decls.end() ? nullptr : &*found;
}

}  // namespace delink
