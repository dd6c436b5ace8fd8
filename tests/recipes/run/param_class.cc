#include "tests/recipes/run/param_class.h"

#include "framework/base/at.h"

namespace delink::testing {

Class ClassOf(const Layout& layout, const LocalSlab& local, size_t param) {
  const ParamDecl& decl =
      layout.registry().decl(At(local.slab.params, param).decl);
  const int pieces = At(layout.program_slabs(), local.program_slab).cut.pieces;
  if (decl.spec.split == Split::kNone) {
    return decl.spec.by_head ? Class::kByHead : Class::kReplicated;
  }
  if (decl.spec.split == Split::kIn) return Class::kByRows;
  if (decl.layer == 0 || decl.layer == layout.blocks() + 1) {
    return Class::kByTokens;
  }
  const bool shared = pieces > 1 && pieces < layout.mesh().tensor;
  return shared ? Class::kSharedRows : Class::kByColumns;
}

}  // namespace delink::testing
