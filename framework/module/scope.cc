#include "framework/module/scope.h"

namespace delink {

Param& Scope::Param(std::string_view name, const ParamSpec& spec) const {
  const int rank = spec.shape.rank();
  DELINK_CHECK(spec.vectors ? rank == 2 : rank <= 3)
      << Join(path_, name) << " has the shape " << spec.shape;
  DELINK_CHECK(spec.split != Split::kExpert || rank == 3 || spec.vectors)
      << Join(path_, name) << " has one entry, which experts cannot cut";
  ParamDecl decl{.name = Join(path_, name),
                 .local = Join(local_, name),
                 .layer = layer_,
                 .part = part_,
                 .spec = spec,
                 .param = std::make_unique<delink::Param>()};
  // A layer's declarations follow one another, so this checks names within a
  // layer. Layout::Create checks that names of different layers differ.
  auto& decls = registry_->decls;
  for (auto other = decls.rbegin();
       other != decls.rend() && other->layer == layer_; ++other) {
    DELINK_CHECK(other->name != decl.name || other->link >= 0)
        << "parameter " << decl.name << " is declared twice";
  }
  decls.push_back(std::move(decl));
  return *decls.back().param;
}

Param& Scope::Link(std::string_view target) const {
  auto& decls = registry_->decls;
  for (size_t i = 0; i < decls.size(); ++i) {
    if (decls[i].name != target || decls[i].link >= 0) continue;
    if (decls[i].layer == layer_) return *decls[i].param;
    ParamDecl link{.name = path_,
                   .local = local_,
                   .layer = layer_,
                   .part = decls[i].part,
                   .spec = decls[i].spec,
                   .link = static_cast<int>(i),
                   .param = std::make_unique<delink::Param>()};
    decls.push_back(std::move(link));
    return *decls.back().param;
  }
  DELINK_CHECK(false) << "no parameter " << std::string(target)
                      << " to link to";
  std::abort();
}

}  // namespace delink
