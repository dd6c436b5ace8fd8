#include "tests/recipes/run/some_blocks.h"

#include <map>
#include <utility>

namespace delink::testing {
namespace {

class Borrowed final : public Module {
 public:
  using Config = Module*;
  Borrowed(const Scope& /*s*/, Module* of) : of_(of) {}
  Var operator()(Var x) override { return (*of_)(x); }

 private:
  Module* of_;
};

class BorrowedEpilogue final : public EpilogueModule {
 public:
  using Config = EpilogueModule*;
  BorrowedEpilogue(const Scope& /*s*/, EpilogueModule* of) : of_(of) {}
  void Loss(Var x) override { of_->Loss(x); }
  Var Logits(Var x) override { return of_->Logits(x); }

 private:
  EpilogueModule* of_;
};

}  // namespace

std::unique_ptr<Sequential> KeepBlocks(const std::vector<int>& blocks,
                                       Sequential& model,
                                       ParamRegistry& registry) {
  std::map<int, int> layers = {{0, 0}};  // by their number in `model`
  // The modules declare nothing again.
  auto few = std::make_unique<Sequential>(Scope(registry));
  few->Prologue<Borrowed>(model.layer_name(0), &model.layer(0));
  for (const int block : blocks) {
    layers[block + 1] = few->layers();
    few->Block<Borrowed>(&model.layer(block + 1));
  }
  layers[model.layers() - 1] = few->layers();
  few->Epilogue<BorrowedEpilogue>(&model.epilogue());
  std::vector<ParamDecl> kept;
  for (ParamDecl& decl : registry.decls) {
    const auto at = layers.find(decl.layer);
    if (at == layers.end()) continue;
    // A link to the prologue, whose declarations stay where they are.
    DELINK_CHECK(decl.link < 0 || registry.decl(decl.link).layer == 0);
    decl.layer = at->second;
    kept.push_back(std::move(decl));
  }
  registry.decls = std::move(kept);
  return few;
}

}  // namespace delink::testing
