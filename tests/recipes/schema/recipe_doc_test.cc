// docs/recipe.md and docs/machines.md are what the schema generates.
#include "recipes/schema/recipe_doc.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "recipes/models/model_list.h"
#include "tests/testing/source_path.h"

namespace delink::recipe_doc_test {
namespace {

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(testing::SourcePath(path)).rdbuf();
  return text.str();
}

TEST(RecipeDoc, TheCommittedPagesAreUpToDate) {
  const std::pair<std::string, std::string> pages[] = {
      {"docs/recipe.md",
       RecipeDoc(KindsOf(BuiltInModels()), TextOf("recipes/commented.toml"))},
      {"docs/machines.md", MachineDoc()}};
  for (const auto& [path, generated] : pages) {
    if (std::getenv("DELINK_WRITE_DOCS") != nullptr) {
      std::ofstream(testing::SourcePath(path)) << generated;
    }
    EXPECT_EQ(TextOf(path), generated)
        << path
        << " is out of date; write it anew with\n"
           "  DELINK_WRITE_DOCS=1 ctest --test-dir BUILD -R recipe_doc_test";
  }
}

}  // namespace
}  // namespace delink::recipe_doc_test
