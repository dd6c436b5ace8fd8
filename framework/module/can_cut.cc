#include "framework/module/can_cut.h"

#include <algorithm>

#include "framework/module/cut_rects.h"

namespace delink {
namespace {

bool CanBeCut(const ParamSpec& spec, int64_t ranks) {
  // Parameters without heads may be cut unevenly.
  if (spec.split == Split::kNone || spec.unit == 1) return true;
  return std::ranges::all_of(StacksOf(spec), [&](const Stack& stack) {
    const int64_t units = stack.count / spec.unit;
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
