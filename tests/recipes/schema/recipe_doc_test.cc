// docs/recipe.md is what the schema generates.
#include "recipes/schema/recipe_doc.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "recipes/models/model_list.h"
#include "tests/testing/source_path.h"

namespace delink::recipe_doc_test {
namespace {

TEST(RecipeDoc, TheCommittedPageIsUpToDate) {
  const std::string path = testing::SourcePath("docs/recipe.md");
  std::ostringstream example;
  example
      << std::ifstream(testing::SourcePath("recipes/commented.toml")).rdbuf();
  const std::string generated =
      RecipeDoc(KindsOf(BuiltInModels()), example.str());
  if (std::getenv("DELINK_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << generated;
  }
  std::ostringstream committed;
  committed << std::ifstream(path).rdbuf();
  EXPECT_EQ(committed.str(), generated)
      << "docs/recipe.md is out of date; write it anew with\n"
         "  DELINK_WRITE_DOCS=1 ctest --test-dir BUILD -R recipe_doc_test";
}

}  // namespace
}  // namespace delink::recipe_doc_test
