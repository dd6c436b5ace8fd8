#include "framework/module/scope.h"

#include <gtest/gtest.h>

#include "tests/framework/module/toy_model.h"

namespace delink::scope_test {
namespace {

TEST(ScopeTest, NamesAreTheStructure) {
  ParamRegistry registry;
  const Scope root(registry);
  const Scope block = root.Layer(3, "blocks/2");
  (block.Part("attention") / "attn" / "qkv").Param("weight", {.shape = {2, 3}});
  const ParamDecl& decl = registry.decls.at(0);
  EXPECT_EQ(decl.name, "blocks/2/attn/qkv/weight");
  EXPECT_EQ(decl.local, "attn/qkv/weight");
  EXPECT_EQ(decl.part, "attention");
  EXPECT_EQ(decl.layer, 3);
  EXPECT_EQ(decl.link, -1);
  EXPECT_EQ(decl.spec.shape, Shape({2, 3}));
}

TEST(ScopeTest, PartEndsWithTheLayer) {
  ParamRegistry registry;
  const Scope block = Scope(registry).Layer(1, "blocks/0").Part("mlp");
  block.Layer(2, "blocks/1").Param("weight", {.shape = {1}});
  EXPECT_EQ(registry.decls.at(0).part, "other");
}

TEST(ScopeTest, LinksToWhatWasDeclared) {
  ParamRegistry registry;
  const Scope root(registry);
  root.Layer(0, "embed").Part("embedding").Param("weight", {.shape = {5, 2}});
  Param& link = (root.Layer(1, "") / "head" / "weight").Link("embed/weight");
  ASSERT_EQ(registry.decls.size(), 2u);
  const ParamDecl& decl = registry.decls[1];
  EXPECT_EQ(decl.name, "head/weight");
  EXPECT_EQ(decl.link, 0);
  EXPECT_EQ(decl.part, "embedding");
  EXPECT_EQ(decl.param.get(), &link);
  EXPECT_NE(registry.decls[0].param.get(), &link);
}

TEST(ScopeDeathTest, RefusesAName) {
  ParamRegistry registry;
  const Scope layer = Scope(registry).Layer(0, "embed");
  layer.Param("weight", {.shape = {1}});
  EXPECT_DEATH(layer.Param("weight", {.shape = {1}}),
               "embed/weight is declared twice");
  EXPECT_DEATH(layer.Link("nowhere"), "no parameter nowhere");
}

}  // namespace
}  // namespace delink::scope_test
