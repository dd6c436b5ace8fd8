#include "framework/module/can_cut.h"

#include <algorithm>
#include <vector>

namespace delink {
namespace {

// Rows, or columns, that are cut by themselves.
std::vector<int64_t> CountsOf(const ParamSpec& spec) {
  if (spec.split == Split::kIn) return {spec.shape[spec.shape.rank() - 1]};
  if (!spec.stacked.empty()) return spec.stacked;
  return {spec.shape[0]};
}

bool CanBeCut(const ParamSpec& spec, int64_t ranks) {
  // What has no heads is cut unevenly where it must be.
  if (spec.split == Split::kNone || spec.unit == 1) return true;
  const std::vector<int64_t> counts = CountsOf(spec);
  return std::all_of(counts.begin(), counts.end(), [&](int64_t count) {
    const int64_t units = count / spec.unit;
    // Rows of fewer heads several ranks have; of a sum each has its own.
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
